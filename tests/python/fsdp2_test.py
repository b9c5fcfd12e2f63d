"""A recorded FSDP2 job: what stands in the logs of its ranks."""

import pytest

from shardledger.kinds import KIND, MODULE_FSDP, MODULE_RECOMPUTE, MODULE_ROOT

WORDS = {number: word for word, number in KIND.items()}


@pytest.fixture(scope="module")
def jobs(start_job):
    with_plugin = start_job("job_fsdp2.py", "--recompute")
    without = start_job("job_fsdp2.py", "--recompute", plugin=False)
    return with_plugin().check(), without().check()


@pytest.fixture(scope="module")
def logs(jobs):
    return jobs[0].logs()


def tree(log, tid):
    """Push/pop ranges of one thread as [(kind, name, value, enclosing names)], checked to nest and to end."""
    ranges, stack = [], []
    for event in log.of("range_push", "range_pop"):
        if event.tid != tid:
            continue
        if event.type == "range_push":
            ranges.append((WORDS[event["category"]], event["name"], event["value"], tuple(stack)))
            stack.append(event["name"])
        else:
            stack.pop()
            assert event["depth"] == len(stack)
    assert not stack
    return ranges


def main_thread(log):
    return next(event.tid for event in log.of("range_push") if event["category"] == KIND["forward"])


def test_each_rank_wrote_a_log_of_its_own_and_lost_nothing(logs):
    assert [log.info()["rank"] for log in logs] == ["0", "1"]
    for log in logs:
        counts = log.of("counts")[0]
        assert (counts["lost"], counts["damaged_segments"]) == (0, 0)
        assert log.info()["world_size"] == "2"
        assert log.info()["fidelity"] == "bridge"
        assert log.info()["backend"] == "gloo"


def test_results_are_the_same_to_the_bit_with_and_without_the_companion(jobs):
    recorded, plain = ([output.out.split() for output in job.output] for job in jobs)
    assert [words[0] for words in recorded] == ["attached", "attached"]
    assert [words[0] for words in plain] == ["not", "not"]
    assert [words[-1] for words in recorded] == [words[-1] for words in plain]


def test_a_job_without_the_plugin_leaves_nothing_and_says_nothing(jobs):
    assert not (jobs[1].directory / "log").exists()
    assert all(output.err == "" for output in jobs[0].output + jobs[1].output)


def test_modules_are_named_as_fsdp_names_them(logs):
    for log in logs:
        modules = {module["fqn"]: module for module in log.of("module")}
        units = {fqn for fqn, module in modules.items() if module["flags"] & MODULE_FSDP}
        assert units == {"", "blocks.0", "blocks.1"}
        names = {event["name"] for event in log.of("range_push") if event["name"].startswith("FSDP::")}
        suffixes = {name.split(" (")[1][:-1] for name in names if " (" in name}
        assert suffixes == units - {""}
        assert modules["blocks.0"]["class_name"] == "Block"
        assert modules[""]["class_name"] == "Model"


def test_a_checkpointed_block_is_one_module_with_its_wrapper(logs):
    modules = {module["fqn"]: module for module in logs[0].of("module")}
    assert set(modules) == {"", "embedding", "blocks", "blocks.0", "blocks.0.up", "blocks.0.down", "blocks.1",
                            "blocks.1.up", "blocks.1.down", "head"}
    assert modules["blocks.0"]["flags"] == MODULE_FSDP | MODULE_RECOMPUTE
    assert modules[""]["flags"] == MODULE_FSDP | MODULE_ROOT
    assert modules["blocks.0.up"]["parent"] == modules["blocks.0"]["id"]
    assert (modules[""]["depth"], modules["blocks"]["depth"], modules["blocks.0.up"]["depth"]) == (0, 1, 3)


def test_parameter_bytes_are_this_ranks_shards(logs):
    block = 4 * (8 * 32 + 32 + 32 * 8 + 8)
    whole = 2 * block + 4 * (4 * 8 + 8 + 8 * 2 + 2)
    totals = [{m["fqn"]: m["parameter_bytes"] for m in log.of("module")} for log in logs]
    assert sum(total["blocks.0"] for total in totals) == block
    assert sum(total[""] for total in totals) == whole
    assert {m["fqn"]: m["buffer_bytes"] for m in logs[0].of("module")}[""] == 32


def test_a_forward_encloses_fsdps_own_ranges(logs):
    for log in logs:
        ranges = tree(log, main_thread(log))
        ids = {module["fqn"]: module["id"] for module in log.of("module")}
        assert ("forward", "blocks.0", ids["blocks.0"], ("Model",)) in ranges
        for name in ("FSDP::pre_forward (blocks.0)", "FSDP::post_forward (blocks.0)"):
            assert ("record_function", name, 0, ("Model", "blocks.0")) in ranges
        assert ("record_function", "FSDP::all_gather", 0, ("Model", "FSDP::pre_forward")) in ranges
        assert [r for r in ranges if r[1] == "Model"] == [
            (kind, "Model", ids[""], ()) for kind in ("forward", "eval", "forward", "forward")]


def test_checkpointed_blocks_run_again_inside_backward(logs):
    for log in logs:
        again = [(name, inside) for kind, name, _, inside in tree(log, main_thread(log)) if kind == "recompute"]
        inner = "._checkpoint_wrapped_module"  # the wrapper itself is not called again
        assert again == 3 * [("blocks.1" + inner, ("backward",)), ("blocks.0" + inner, ("backward",))]


def test_backward_and_optimizer_are_ranges_of_the_main_thread(logs):
    for log in logs:
        ranges = tree(log, main_thread(log))
        assert [r for r in ranges if r[0] == "backward"] == 3 * [("backward", "backward", 0, ())]
        assert [r for r in ranges if r[0] == "optimizer_step"] == 3 * [
            ("optimizer_step", "AdamW", 1, ())]
        reduces = [r for r in ranges if r[1] == "FSDP::post_backward_reduce (blocks.1)"]
        assert reduces == 3 * [("record_function", "FSDP::post_backward_reduce (blocks.1)", 0, ("backward",))]


def test_collectives_are_ranges_that_end(logs):
    for log in logs:
        started = {e["id"]: e["name"] for e in log.of("range_start") if e["name"].startswith("gloo:")}
        assert "gloo:all_gather" in set(started.values())
        assert set(started) <= {event["id"] for event in log.of("range_end")}


def test_steps_follow_each_other_and_leave_the_evaluation_out(logs):
    for log in logs:
        tid, running, seen = main_thread(log), None, []
        steps = {e["id"]: e["value"] for e in log.of("range_start") if e["category"] == KIND["step"]}
        assert list(steps.values()) == [0, 1, 2]
        for event in log:
            if event.tid != tid:
                continue
            if event.type == "range_start" and event["id"] in steps:
                assert running is None
                running = steps[event["id"]]
            elif event.type == "range_end" and event["id"] in steps:
                assert running == steps[event["id"]]
                running = None
            elif event.type == "range_push":
                seen.append((running, WORDS[event["category"]], event["name"]))
        assert running is None
        outside = [(kind, name) for step, kind, name in seen if step is None and kind != "record_function"]
        assert outside == [("eval", "Model"), ("forward", "blocks.0"), ("forward", "blocks.1")]
        for step in range(3):
            names = [name for at, _, name in seen if at == step]
            order = [names.index(name) for name in ("Optimizer.zero_grad#AdamW.zero_grad", "Model", "backward", "AdamW")]
            assert order == sorted(order)


def test_only_selected_modules_have_ranges(logs):
    named = {event["name"] for event in logs[0].of("range_push") if event["category"] == KIND["forward"]}
    assert named == {"Model", "blocks.0", "blocks.1"}
