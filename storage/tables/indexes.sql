-- The indexes of a ledger, made after its last row. Each serves a question that the views or the commands ask.

CREATE INDEX allocation_by_time ON allocation(rank, alloc_ns);
CREATE INDEX phase_by_time ON phase(rank, start_ns);
CREATE INDEX mark_by_time ON mark(rank, at_ns);
CREATE INDEX phase_by_module ON phase(rank, step, module_id);
CREATE INDEX module_by_name ON module(rank, fqn);
CREATE INDEX module_root ON module(rank, class) WHERE parent_id IS NULL;
CREATE INDEX collective_by_number ON collective(comm, seq);
CREATE INDEX collective_untimed ON collective(untimed) WHERE untimed IS NOT NULL;
CREATE INDEX kernel_of_nccl ON kernel(rank) WHERE name GLOB '*nccl*Kernel*';
CREATE INDEX allocation_survivor ON allocation(rank, step) WHERE last_step > step;
CREATE INDEX period_by_peak ON period(rank, peak_allocated_bytes DESC);
CREATE INDEX period_by_time ON period(rank, end_ns);
CREATE UNIQUE INDEX step_by_number ON period(rank, step) WHERE kind = 'step';
CREATE INDEX step_by_peak ON period(rank, peak_allocated_bytes DESC) WHERE kind = 'step';
CREATE INDEX allocation_by_end ON allocation(rank, last_step, period) WHERE last_step IS NOT NULL;
CREATE INDEX collective_total_by_step ON collective_total(rank, step);
CREATE INDEX peak_owner_by_period ON peak_owner(rank, period);
CREATE INDEX device_sample_by_time ON device_sample(rank, at_ns);
CREATE INDEX device_sample_by_use ON device_sample(rank, used_bytes, at_ns);
CREATE INDEX device_owner_by_time ON device_owner(rank, at_ns);
CREATE INDEX peak_site_by_period ON peak_site(rank, period);
CREATE INDEX frame_by_caller ON frame(caller_id);
