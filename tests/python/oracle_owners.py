"""The oracle's second half: phases, and who owns each allocation, by the rules of docs/categories.md."""

import collections
import re

from oracle import ALLOC, FREE_COMPLETED, FREE_REQUESTED, GROW, STEP, Allocator, in_order
from oracle_parts import KINDS, NEVER, RULES, Allocation, Held, Period, Phase, is_named

WORKSPACES = (32 << 20, 8519680)


class Story:
    """What happened, by instant: the place of an event in the log's order."""

    def __init__(self, log):
        self.log, self.phases, self.allocations, self.steps, self.periods = log, [], [], [], []
        self.now = self.ns = self.latest = 0
        self.stacks, self.started, self.live, self.allocators = {}, {}, {}, {}
        self.open_backward, self.whole = [], []
        self.held = []  # the allocations that were not freed when a step ended last, and later ones
        self.step = None
        self.known_peaks = {}  # by device
        self.device = None  # the rank's: of its first allocation, or that which held the most before
        self.restore()
        events = list(enumerate(in_order(log), 1))
        self.begin_period("setup", None, -1)
        self.periods[0].ns = min((event.ns for event in (*log.definitions, *(event for _, (_, event) in events))), default=0)
        self.unit_ends = self.ends_of_units(events)
        for self.now, (ordinal, event) in events:
            self.ns, self.latest = event.ns, max(self.latest, event.ns)
            getattr(self, "on_" + event.type, lambda *_: None)(ordinal, event.fields)
        if self.step:
            self.close_step()
        else:
            self.periods[-1].kind = "end" if self.steps else "whole"
            self.end_period(self.now)
        self.name_periods()
        self.decide()

    # ---- phases ----
    def named(self, name, kind):
        point = None
        if kind == "record_function":
            kind = "user"
            for prefix, meant, where in RULES:
                if name.startswith(prefix):
                    kind, point = meant, where or None
                    break
        return kind, point

    def unit(self, name, around):
        """The module that a range of FSDP's names: by its suffix, none is the root; of the model that is running."""
        if not name.startswith("FSDP::"):
            return None
        suffix = re.search(r" \((.+)\)$| for (.+)$", name)
        fqn = (suffix.group(1) or suffix.group(2)).split(", ")[0] if suffix else ""
        modules = self.log.modules
        named = [key for key, module in modules.items() if module["fqn"] == fqn]
        running = next((phase.module for phase in around if phase.module), None) or self.last_root
        return next((key for key in named if running and self.root(key) == self.root(running)), named[0] if named else None)

    last_root = None

    def root(self, module):
        while self.log.modules.get(module, {}).get("parent"):
            module = self.log.modules[module]["parent"]
        return module

    def ends_of_units(self, events):
        """{instant at which FSDP::pre_backward of a unit began: that at which its backward ended}: with its reduce, or with its
        reshard where no range of the unit's follows."""
        stacks, began, ends = collections.defaultdict(list), {}, {}
        for now, (ordinal, event) in events:
            if event.type == "range_push":
                name = self.log.strings[event.fields["name"]]
                point, _, unit = name.partition(" ")
                stacks[ordinal].append((point, unit))
                reducing = unit if point == "FSDP::post_backward_reduce" else None
                if self.log.domains[event.fields["domain"]] != "NCCL":
                    began = {u: at for u, at in began.items() if at not in ends or u == reducing}
                if reducing in began:
                    ends.pop(began[reducing], None)
                if point == "FSDP::pre_backward":
                    began.setdefault(unit, now)
            elif event.type == "range_pop" and stacks[ordinal] or event.type == "lost":
                popped = [stacks[ordinal].pop()] if event.type == "range_pop" else stacks[ordinal][::-1]
                if event.type == "lost":
                    stacks[ordinal] = [(None, None)] * len(popped)
                for point, unit in popped:
                    if unit in began and point == "FSDP::post_backward_reduce":
                        ends[began.pop(unit)] = now
                    elif unit in began and point == "FSDP::post_backward_reshard":
                        ends[began[unit]] = now
                    if point == "backward":
                        began = {}
        return ends

    def around(self, ordinal):
        """The innermost phase at this instant on this thread."""
        top = next((phase for _, phase in reversed(self.stacks.get(ordinal, ())) if phase), None)
        if top and top not in self.whole:  # backward may run on the thread that asked for it
            return top
        inner = [p for p in self.open_backward if p.end > self.now]
        if inner and (self.whole or not top):
            return inner[-1]
        return self.whole[-1] if self.whole else self.step

    def begin(self, ordinal, fields, kind, name, point, parent):
        module = fields["value"] if kind in ("forward", "backward", "recompute", "eval") and fields["value"] in self.log.modules else None
        if kind == "optimizer_step" and any(p.kind == "optimizer_step" for p in (parent.around() if parent else ())):
            kind = "user"
        around = list(parent.around()) if parent else []
        phase = Phase(ordinal, kind, name, point, module, self.now, self.ns, parent)
        phase.module = module or self.unit(name, around)
        if phase.module is None and kind not in ("step", "backward"):
            phase.module = next((p.module for p in around if p.module), None)
        if kind in ("forward", "recompute", "eval") and module:
            self.last_root = self.root(module)
        self.phases.append(phase)
        return phase

    def on_range_push(self, ordinal, fields):
        domain = self.log.domains[fields["domain"]]
        stack = self.stacks.setdefault(ordinal, [])
        if domain == "NCCL":
            return
        name = self.log.strings[fields["name"]]
        kind, point = self.named(name, KINDS[fields["category"]] if domain == "shardledger" else "user")
        parent = self.around(ordinal)
        if point == "pre_backward":
            module = self.unit(name, parent.around() if parent else ())
            of = self.log.modules.get(module, {})
            unit = Phase(ordinal, "backward", of["fqn"] or of["class_name"], None, module, self.now, self.ns, self.whole[-1] if self.whole else self.step)
            unit.end = self.unit_ends.get(self.now, NEVER)
            if not any(p.module == module and p.end > self.now for p in self.open_backward):
                self.open_backward.append(unit)
                self.phases.append(unit)
                parent = self.around(ordinal)
        phase = self.begin(ordinal, fields, kind, name, point, parent)
        stack.append((fields["domain"], phase))
        if kind == "backward" and phase.module is None:
            self.whole.append(phase)

    def on_range_pop(self, ordinal, fields):
        stack = self.stacks.get(ordinal, [])
        at = next((at for at in reversed(range(len(stack))) if stack[at][0] == fields["domain"]), None)
        if at is None:
            return
        phase = stack.pop(at)[1]
        if phase:
            self.ends(phase)

    def ends(self, phase):
        phase.end, phase.end_ns = self.now, self.ns
        if phase in self.whole:
            self.whole.remove(phase)
            for module in self.open_backward:
                module.end = min(module.end, self.now)
            self.open_backward = []

    def on_lost(self, ordinal, fields):
        """What the thread did next is missing: what it had pushed ends here, and its later ends mean nothing."""
        for at in reversed(range(len(self.stacks.get(ordinal, ())))):
            domain, phase = self.stacks[ordinal][at]
            if phase:
                self.ends(phase)
                self.stacks[ordinal][at] = domain, None

    def on_range_start(self, ordinal, fields):
        name = self.log.strings[fields["name"]]
        kind, _ = self.named(name, KINDS[fields["category"]] if self.log.domains[fields["domain"]] == "shardledger" else "user")
        if kind == "step":
            if self.step:  # it ends where the next one begins
                self.step.end, self.step.end_ns = self.now, self.ns
                self.close_step()
                self.begin_period("between", self.step.number, self.now)
            self.end_period(self.now - 1)
            self.step = Phase(ordinal, kind, name, None, None, self.now, self.ns, None)
            highest = max((step.number for step in self.steps), default=-1)
            self.step.number = fields["value"] if highest < fields["value"] < 2**53 else highest + 1
            self.steps.append(self.step)
            self.started[fields["id"]] = self.step
            self.begin_period("step", self.step.number, self.now - 1)
            self.phases.append(self.step)
        elif kind == "backward":
            parent = self.whole[-1] if self.whole else self.step
            phase = self.started[fields["id"]] = self.begin(ordinal, fields, kind, name, None, parent)
            self.open_backward.append(phase)
        else:  # it may end on another thread, and nothing is in it
            self.started[fields["id"]] = self.begin(ordinal, fields, kind, name, None, self.around(ordinal))

    def on_range_end(self, ordinal, fields):
        phase = self.started.pop(fields["id"], None)
        if phase:
            phase.end, phase.end_ns = self.now, self.ns
            if phase in self.open_backward:
                self.open_backward.remove(phase)
            if phase is self.step:
                self.close_step()
                self.begin_period("between", self.step.number, self.now)
                self.step = None

    def close_step(self):
        self.end_period(self.now)
        self.held = [a for a in self.held if a.free == NEVER]
        for a in self.held:
            a.last_step = self.step.number

    # ---- periods ----
    def begin_period(self, kind, step, instant):
        self.periods.append(Period(len(self.periods), kind, step, instant, self.latest, self.sums()))

    def end_period(self, instant):
        """Where no device is known yet, nothing is known of its memory."""
        period, allocator = self.periods[-1], self.allocator(self.device)
        period.ended, period.end_ns = max(instant, period.began), self.latest
        period.ends, period.free = allocator.sums(), (allocator.largest_free(), allocator.inactive_split())
        if self.device is None:
            period.peaks, period.ends, period.free = (None,) * 4, (None,) * 4, (None,) * 2

    def name_periods(self):
        """What ran the longest in each outside of steps: of the outermost evaluations and ranges of the user's that began and ended
        in it, or that were open when the log ended. Of equal ones, the later one."""
        for period in self.periods:
            times, last = collections.Counter(), {}
            end = NEVER if period is self.periods[-1] else period.ended
            named = [p for p in self.phases if is_named(p) and period.began < p.start and p.end <= end]
            for p in named if period.kind != "step" else ():
                if not any(q in named for q in list(p.around())[1:]):
                    name = "evaluation" if p.kind == "eval" else p.name
                    times[name] += max(0, (self.latest if p.end_ns is None else p.end_ns) - p.ns)
                    last[name] = max(p.end, last.get(name, 0))
            period.name = max(times, key=lambda name: (times[name], last[name]), default=None)

    def period_figures(self):
        """{number: (kind, step, name, times, the four peaks, the four sums at its end, free blocks then)}"""
        return {p.number: (p.kind, p.step, p.name, p.ns, p.end_ns, *p.peaks, *p.ends, *p.free) for p in self.periods}

    def places(self):
        """{number: where the period lies, in words}"""
        found = {}
        for p, after in zip(self.periods, [*self.periods[1:], None]):
            words = {"setup": "before step {1}", "step": "step {0}", "between": "between steps {0} and {1}", "end": "after step {0}",
                     "whole": "in a job without steps"}[p.kind]
            found[p.number] = words.format(p.step, after and after.step) + (f" ({p.name})" if p.name else "")
        return found

    def life(self):
        """Number of periods, that of the highest one and of the highest step, the four peaks."""
        known = [p for p in self.periods if p.peaks[1] is not None]
        highest = [max((q for q in known if q.kind in kinds), key=lambda q: q.peaks[1], default=None)
                   for kinds in ({q.kind for q in known}, ("step",))]
        return (len(self.periods), *(q and q.number for q in highest),
                *(max((q.peaks[i] for q in known), default=None) for i in range(4)))

    # ---- memory ----
    def allocator(self, device):
        if device not in self.allocators:
            self.allocators[device] = Allocator(self.log)
        return self.allocators[device]

    def sums(self):
        return self.allocator(self.device).sums()

    def restore(self):
        for restore, blocks in self.log.restores:
            allocator = self.allocator(restore["device"])
            for block in allocator.restore(blocks):
                if block.requested:
                    a = Allocation(restore["device"], block.address, 0, None, 0, None, None, None)
                    a.restored, a.bytes, a.requested = True, block.bytes, block.requested
                    block.allocation = a
                    self.allocations.append(a)
                    self.held.append(a)
        if self.allocators:
            self.device = max(self.allocators, key=lambda device: self.allocators[device].sums()[3])

    def on_allocator(self, ordinal, fields):
        place = self.log.places[fields["place"]]
        device, action = place["device"], fields["action"]
        if any(r["device"] == device and fields["sequence"] < r["sequence"] for r, _ in self.log.restores):
            return  # part of what was restored
        self.device = device if self.device is None else self.device
        a = None
        if action == ALLOC:
            a = Allocation(device, fields["address"], self.now, self.ns, ordinal, self.around(ordinal),
                           self.step.number if self.step else None, place["stream"], self.periods[-1].number)
        block = self.allocator(device).event(fields, a)
        if device == self.device and action in GROW:
            self.periods[-1].peaks = tuple(map(max, self.periods[-1].peaks, self.sums()))
        if not block:
            return
        if action == ALLOC:
            a.bytes, a.requested = block.bytes, fields["bytes"]
            self.allocations.append(a)
            self.held.append(a)
        elif action == FREE_REQUESTED and block.allocation:
            a = block.allocation
            a.free, a.free_ns, a.free_phase = self.now, self.ns, self.around(ordinal)
        elif action == FREE_COMPLETED and block.allocation:
            block.allocation.complete, block.allocation = self.now, None

    def on_tag(self, ordinal, fields):
        block = self.allocator(fields["device"]).find(fields["address"], 1)
        if block and block.allocation:
            strings = self.log.strings
            block.allocation.tags.append((self.now, strings[fields["category"]], fields["module"] or None, strings[fields["name"]]))

    # ---- owners ----
    def step_after(self, instant):
        return next((s for s in self.steps if s.end > instant), None)

    def decide(self):
        """With what is known when the step ends in which, or before which, an allocation was made."""
        said = [self.log.strings[event.fields["state"]] for event in self.log.definitions
                if event.type == "source_state" and self.log.strings[event.fields["source"]] == "companion"]
        self.companion = said[-1:] == ["on"]
        self.optimizer_steps = [p for p in self.phases if p.kind == "optimizer_step"]
        self.whole_backwards = [p for p in self.phases if p.kind == "backward" and not p.module]
        owners = set()  # cuBLAS has a workspace for each thread and stream
        for a in self.allocations:
            a.workspace = not a.tags and self.is_workspace(a) and (a.ordinal, a.stream) not in owners
            owners.update([(a.ordinal, a.stream)] if a.workspace else [])
        for a in self.allocations:
            a.category, a.detail, a.rule, a.module = self.owner(a)

    def owner(self, a, tags=None):
        """category, detail, rule and module of an allocation with these tags (None: all of its own)"""
        tags = a.tags if tags is None else tags
        category, detail, rule, module = self.by_phases(a)
        if not tags:
            return category, detail, rule, module
        module = next((tagged for _, _, tagged, _ in reversed(tags) if tagged), module)
        if tags[-1][1] == "cublas_workspace":
            return "workspace", "cublas_workspace", "cublas_workspace", None
        return tags[-1][1], None, "tag", module

    def by_phases(self, a):
        module = next((p.module for p in a.phase.around() if p.module), None) if a.phase else None
        if a.restored:
            return "unattributed", "before_attach", "restored", None
        if a.workspace:
            return "workspace", "cublas_workspace", "cublas_workspace", None
        step = self.step_after(a.start)
        step_end = step.end if step else NEVER
        cut = bool(step) and step_end == NEVER  # the log ends within it
        backward = next((p for p in a.phase.around() if p.kind == "backward" and p.module is None), None) if a.phase else None
        whole_end = backward.end if backward else step_end
        for p in a.phase.around() if a.phase else ():
            dead = a.free <= min(p.end, self.now)
            found = None
            if p.point == "all_gather":
                found = ("all_gather", "cast", "fsdp_all_gather_cast") if dead else ("all_gather", None, "fsdp_all_gather")
            elif p.point == "copy_out":
                found = ("temp", "copy_out", "fsdp_copy_out_temp") if dead else ("unsharded_param", None, "fsdp_copy_out")
            elif p.point in ("pre_forward", "pre_backward") and not dead:
                found = ("unsharded_param", None, "fsdp_only_shard")
            elif p.point == "fsdp1_unshard":
                found = ("temp", "cast", "fsdp1_unshard_temp") if dead else ("unsharded_param", None, "fsdp1_unshard")
            elif p.point == "inputs":
                found = ("input", None, "fsdp_inputs")
            elif p.point == "accumulate" and not dead:
                found = ("unsharded_grad", "accumulated", "fsdp_accumulate")
            elif p.point == "reduce_scatter":
                found = (("reduce_scatter", "staging", "fsdp_reduce_staging") if dead else
                         ("reduce_scatter", None, "fsdp_reduce_scatter") if a.free <= min(whole_end, self.now) else
                         ("sharded_grad", None, "fsdp_sharded_grad"))
            elif p.point == "ddp_buckets" and not dead and self.there_to_step(a, step_end):
                found = ("gradient", "ddp_bucket", "ddp_bucket")
            elif p.kind == "optimizer_step":
                found = ("temp", "optimizer", "optimizer_temp") if dead else ("optstate", None, "optimizer_state")
            elif p.kind == "recompute":
                found = ("temp", "recompute", "recompute_temp") if dead else ("activation", "recompute", "recompute_activation")
            elif p.kind in ("forward", "eval"):
                call = [q for q in p.around() if q.kind in ("forward", "eval")][-1]
                found = (("temp", "forward", "forward_temp") if dead else
                         ("program", "output", "call_output") if a.step is None and a.free > call.end else
                         ("activation", None, "forward_activation") if a.free < NEVER and a.free <= step_end or cut or p.end == NEVER else
                         ("other", "survivor", "forward_survivor"))
            elif p.kind == "backward":
                freed = next((q for q in a.free_phase.around() if q.point in ("reduce_scatter", "root_callback")), None) if a.free_phase and a.free <= step_end else None
                if freed:
                    rule = "freed_in_reduce" if freed.point == "reduce_scatter" else "freed_in_root_callback"
                    return "unsharded_grad", None, rule, freed.module or module
                steps = self.optimizers(a, step_end)
                found = ("gradient", None, "backward_gradient") if steps and a.free > steps[0].start else (
                    "gradient", "kept", "backward_kept") if self.is_kept(a, step, backward) else (
                    "temp", "backward", "backward_temp") if a.free <= min(step_end, self.now) else (
                        "gradient", *(("in_flight", "backward_in_flight") if cut and backward and backward.end == NEVER else
                                      ("accumulated", "backward_survivor")))
            if found:
                return *found, module
        if a.step is not None:
            backwards = [q for q in self.whole_backwards if a.start < q.start < step_end]
            found = (("other", "survivor", "step_survivor") if a.free > step_end else
                     ("activation", "outside_modules", "step_activation") if cut and a.free == NEVER or backwards and a.free > backwards[0].start else
                     ("temp", "outside_modules", "step_temp"))
            return *found, module
        if not self.companion:
            return "unattributed", None, "none", module
        if step and a.free <= min(step_end, self.now):  # where no step follows, everything is freed as the process ends
            return "program", "temporary", "program_temp", module
        return "program", None, "program_kept", module

    def optimizers(self, a, step_end):
        return [p for p in self.optimizer_steps if a.start < p.start < step_end]

    def is_kept(self, a, step, backward):
        """It outlives the whole backward of a step without optimizers, and is freed in the step and in no backward."""
        if a.step is None or not backward or not backward.end < a.free <= step.end < NEVER:
            return False
        begin = max((other.end for other in self.steps if other.end <= step.start), default=0)
        freed_in = a.free_phase.around() if a.free_phase else ()
        return (not any(begin <= p.start < step.end for p in self.optimizer_steps)
                and not any(p.kind == "backward" and p.module is None for p in freed_in))

    def there_to_step(self, a, step_end):
        steps = self.optimizers(a, step_end)
        return not steps or a.free > steps[0].start

    def is_workspace(self, a):
        if "cublas_workspaces" in self.log.info or a.requested not in WORKSPACES or a.free != NEVER:
            return False
        if not a.phase or (a.step or 0) > 1:
            return False
        graded = any("grad" in category for b in self.allocations for _, category, _, _ in b.tags)
        return graded or all(p.kind != "backward" for p in a.phase.around())

    # ---- sums ----
    def changes(self, device):
        """[(instant, bytes, category, detail, module)]: what allocated memory gains and loses. A tag that comes after the
        end of the step in which, or before which, its tensor was made counts from the end of the step before its own on."""
        for a in self.allocations:
            if a.device != device:
                continue
            step = self.step_after(a.start)
            early = [tag for tag in a.tags if not step or tag[0] <= step.end]
            late = a.tags[len(early):]
            category, detail, _, module = self.owner(a, early)
            start = a.start
            for instant, named, tagged, _ in late + [(NEVER, None, None, None)]:
                if instant != NEVER:
                    instant = max((s.end for s in self.steps if s.end < instant), default=0) + 0.5
                end = min(instant, a.free)
                if start < end or start == 0:
                    yield start, a.bytes, category, detail, module
                    yield end, -a.bytes, category, detail, module
                workspace = named == "cublas_workspace"
                start, category, detail = end, "workspace" if workspace else named, named if workspace else None
                module = None if workspace else tagged or module

    def above(self, module):
        while module:
            yield module
            module = self.log.modules[module]["parent"]

    def peaks(self, device):
        """What was highest: {(period, module, phase): [bytes, {category: bytes}, own bytes, own bytes with children]}, the module
        None for a phase as a whole, the phase too for the whole period; and {period: {(category, detail, module): bytes}} at each
        period's own peak. A phase counts in the period that it began in."""
        if device in self.known_peaks:
            return self.known_peaks[device]
        at, opened = collections.defaultdict(list), collections.defaultdict(list)
        for change in self.changes(device):
            at[change[0]].append(change[1:])
        for p in self.phases:
            if p.kind in ("backward", "optimizer_step") or p.kind in ("forward", "recompute", "eval") and p.module:
                opened[p.start].append(p)
        instants = collections.deque(sorted({*at, *opened} - {NEVER}))
        found, owners = {}, {}
        self.known_peaks[device] = found, owners
        now = Held()

        def measure(key, module):
            peak = found.setdefault(key, [-1, None, 0, 0])
            if now.total > peak[0]:
                peak[:2] = now.total, now.by_category()
                if key[1:] == (None, None):
                    owners[key[0]] = {owner: size for owner, size in now.held.items() if size}
            if module:
                peak[2:] = max(peak[2], now.own[module]), max(peak[3], now.below[module])

        for period in self.periods:
            while instants and instants[0] <= period.began + 0.5:
                self.apply(at[instants.popleft()], now)
            active = []
            if period.began >= 0:  # what it begins with; the first one with what is restored
                measure((period.number, None, None), None)
            while instants and instants[0] <= period.ended:
                instant = instants.popleft()
                self.apply(at.get(instant, ()), now)
                active = [p for p in active if p.end > instant] + opened.get(instant, [])
                measure((period.number, None, None), None)
                for p in active:
                    module = p.module if p.kind != "optimizer_step" else None
                    measure((period.number, module, p.kind), module)
            found.setdefault((period.number, None, None), [0, {}, 0, 0])
        return found, owners

    def apply(self, changes, now):
        for size, category, detail, module in changes:
            now.total += size
            now.held[category, detail, module] += size
            if not now.held[category, detail, module]:
                del now.held[category, detail, module]
            now.own[module] += size
            for m in self.above(module):
                now.below[m] += size

    def survivors(self):
        """{(step, module, category, detail): [bytes, allocations, bytes kept to the end of the last step]}"""
        found, last = collections.defaultdict(lambda: [0, 0, 0]), max((s.number for s in self.steps), default=None)
        for a in self.allocations:
            if a.step is not None and a.last_step is not None and a.last_step > a.step:
                sums = found[a.step, a.module, a.category, a.detail]
                sums[0] += a.bytes
                sums[1] += 1
                sums[2] += a.bytes * (a.last_step == last)
        return dict(found)

    def growth(self):
        """{(category, detail, module, kind of phase): [bytes, allocations, births, late births, births of what is gone]} of what is
        held at the end of the last whole step and was not at that of the third (of five the second, of four the first), less
        what was then and is not now."""
        numbers = sorted(step.number for step in self.steps if step.end != NEVER)
        if len(numbers) < 4:
            return {}
        period_of = {period.step: period.number for period in self.periods if period.kind == "step"}
        early, last = period_of[numbers[min(len(numbers) - 4, 2)]], period_of[numbers[-1]]
        then, now = self.periods[early].ended, self.periods[last].ended
        found, born, gone = collections.defaultdict(lambda: [0] * 5), collections.defaultdict(set), collections.defaultdict(set)
        for a in self.allocations:
            held = [a.start <= instant < a.free for instant in (then, now)]
            if a.device != self.device or held[0] == held[1]:
                continue
            around = [p.kind for p in a.phase.around()] if a.phase else [None]
            owner = a.category, a.detail, a.module, next((kind for kind in around if kind != "user"), "user")
            found[owner][0] += a.bytes if held[1] else -a.bytes
            found[owner][1] += held[1]
            if held[1] and a.period < last - 1:
                born[owner].add(a.period)
            if held[0]:
                gone[owner].add(a.period)
        for owner, periods in born.items():
            found[owner][2:4] = len(periods), sum(period > (early + last) // 2 for period in periods)
        for owner, periods in gone.items():
            found[owner][4] = len(periods)
        return dict(found)
