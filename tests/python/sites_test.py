"""Where in the code memory is asked for: in which steps it is recorded, and what the bridge says of a call."""

import ctypes
import shutil
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from shardledger._companion.allocations import bridge, compiler, sites
from shardledger._companion.signatures import bind

OFF, STACKS, OPERATORS, BETWEEN = range(4)
CALLER, FORWARD, WAITING = range(3)


@pytest.fixture
def followed(companion, monkeypatch):
    """The modes that the bridge is told, with a bridge that only notes them. ends: allocated bytes of the next steps' ends."""
    told = types.SimpleNamespace(modes=[], ends=[], history=False)

    def follow(mode):
        told.modes.append(mode)
        return int(told.history)

    library = types.SimpleNamespace(start_sites=lambda *a: 0, start_uses=lambda *a: 0, follow_sites=follow, error=lambda: b"", site_now=lambda: 7,
                                    site_of_waiting=lambda frame: 8)
    monkeypatch.setattr(sites.native, "address", lambda library, name: None)
    monkeypatch.setattr(sites.torch._C, "_cuda_record_memory_history", lambda enabled, *a, **k: told.modes.append(f"program {enabled}"),
                        raising=False)
    monkeypatch.setattr(bridge, "step_ended", lambda: told.ends.pop(0) if told.ends else 100)
    told.start = lambda: sites.start(library)
    return told


def train(count):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


def test_the_first_steps_are_followed_and_all_that_is_outside_of_steps(followed):
    followed.start()
    train(4)
    assert followed.modes == [STACKS, OPERATORS, BETWEEN, OPERATORS, BETWEEN, OFF, STACKS, OFF, STACKS]


def test_the_step_after_an_unusual_end_is_followed_but_less_and_less_often(followed):
    followed.start()
    followed.ends = [100, 100, 100, 200] + list(range(300, 360))
    train(60)
    in_steps = [mode for mode in followed.modes[1::2]]
    assert [i for i, mode in enumerate(in_steps) if mode == OPERATORS] == [0, 1, 4, 14, 34]


@pytest.mark.parametrize("option, steps", [("all", [0, 1, 2, 3]), ("2:3", [2]), ("none", [])])
def test_the_option_chooses_the_steps(followed, monkeypatch, option, steps):
    monkeypatch.setenv("SHARDLEDGER_STACKS", option)
    followed.start()
    train(4)
    modes = followed.modes[1::2]
    assert [i for i, mode in enumerate(modes) if mode == OPERATORS] == steps
    if option == "none":
        assert not followed.modes


def test_a_history_of_the_programs_own_is_left_alone(followed):
    followed.start()
    torch._C._cuda_record_memory_history("all")
    train(2)
    assert followed.modes == [STACKS, OFF, "program all"], "ours ends before theirs begins, and stays off"
    torch._C._cuda_record_memory_history(None)
    train(1)
    assert followed.modes[3:] == ["program None", BETWEEN, OFF, STACKS], "ours is back as theirs ends, and follows steps again"


def test_a_history_that_was_there_before_is_left_alone(followed):
    followed.history = True
    followed.start()
    train(1)
    assert sites._mode == OFF and set(followed.modes) <= {STACKS, OPERATORS, BETWEEN}


def test_turning_off_what_is_not_the_programs_does_not_end_ours(followed):
    followed.start()
    torch._C._cuda_record_memory_history(None)
    assert followed.modes == [STACKS, "program None", STACKS], "PyTorch's own call turned ours off, and it is on again"


def test_a_refused_request_has_the_stack_of_its_thread_or_of_the_one_that_waits(followed, companion, monkeypatch):
    followed.start()
    sites.refused(0)
    assert companion.calls.named("refused_site") == [("refused_site", 0, 7)]
    companion.calls.clear()
    monkeypatch.setattr(sites, "_has_frames", lambda: False)
    sites.refused(0)
    assert not companion.calls.named("refused_site"), "the main thread waits for nobody"
    autograds = threading.Thread(target=sites.refused, args=(0,))
    autograds.start()
    autograds.join()
    assert companion.calls.named("refused_site") == [("refused_site", 0, 8)]


# ---- the bridge itself ----


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The bridge, compiled: .frames and .sites are what it defined, .library its functions."""
    include = compiler.find_cuda_include()
    if include is None or torch.version.cuda is None:
        pytest.skip("no CUDA headers, or a torch without CUDA")
    path = str(tmp_path_factory.mktemp("bridge") / "bridge.so")
    done = compiler._run(compiler._command(compiler.BRIDGE, compiler.find_compiler(), include, "c++17", path), 300)
    assert done.returncode == 0, done.stdout
    library = types.SimpleNamespace(**{name.removeprefix("slb_"): function for name, function in
                                       bind("torch_bridge.cpp", ctypes.PyDLL(path), ctypes.CDLL(path))})
    found = types.SimpleNamespace(library=library, frames={}, sites={}, allocated=[], uses=[], watched=[])
    u32, text = ctypes.c_uint32, ctypes.c_char_p
    kept = (ctypes.PYFUNCTYPE(None, u32, u32, text, text, u32)(
                lambda id, caller, file, function, line: found.frames.update({id: (caller, file.decode(), function.decode(), line)})),
            ctypes.PYFUNCTYPE(None, u32, u32, text, ctypes.c_int)(
                lambda id, frame, name, stack_of: found.sites.update({id: (frame, name.decode(), stack_of)})),
            ctypes.PYFUNCTYPE(None, ctypes.c_int, u32)(lambda device, site: found.allocated.append(site)))
    told = (ctypes.PYFUNCTYPE(None, ctypes.c_uint64, u32, u32)(lambda address, site, lasted: found.uses.append((address, site, lasted))),
            ctypes.PYFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(lambda on, asked: found.watched.append((on, asked))))
    found.kept, found.path = (kept, told), path
    addresses = lambda functions: (ctypes.cast(function, ctypes.c_void_p) for function in functions)  # noqa: E731
    assert library.start_sites(*addresses(kept), b"/not/ours/") == 0, library.error()
    assert library.start_uses(*addresses(told), b"cpu") == 0, library.error()
    yield found
    assert library.follow_sites(OFF) == 0


def stack(found, site):
    frame, names = found.sites[site][0], []
    while frame:
        caller, _, function, line = found.frames[frame]
        names.append((function, line))
        frame = caller
    return names


def line_here():
    return sys._getframe(1).f_lineno


def test_a_call_stack_has_the_frames_of_this_thread(real):
    def inner():
        return real.library.site_now(), line_here()

    site, line = inner()
    frames = stack(real, site)
    assert frames[0] == ("test_a_call_stack_has_the_frames_of_this_thread.<locals>.inner" if sys.version_info >= (3, 11) else "inner", line)
    assert frames[1][0] == "test_a_call_stack_has_the_frames_of_this_thread" and real.sites[site][1:] == ("", CALLER)
    assert real.frames[real.sites[site][0]][1].endswith("sites_test.py")


def test_one_place_is_one_site_and_another_line_another(real):
    found = [real.library.site_now() for _ in range(3)]
    assert len(set(found)) == 1
    assert real.library.site_now() not in found
    known = len(real.frames)
    for _ in range(1000):
        real.library.site_now()
    assert len(real.frames) <= known + 1


WITH_ERROR = """
extern "C" {
extern void *PyExc_KeyError;
void PyErr_SetString(void *, const char *);
void *PyErr_Occurred(void);
void PyErr_Clear(void);
unsigned frames, sites, unclean;
void a_frame(unsigned, unsigned, const char *, const char *, unsigned) { frames++, unclean += PyErr_Occurred() != nullptr; }
void a_site(unsigned, unsigned, const char *, int) { sites++; }
void an_allocation(int, unsigned) {}
unsigned with_error(unsigned (*site_now)(void)) {
  PyErr_SetString(PyExc_KeyError, "on its way");
  return site_now();
}
}
"""


def test_an_error_that_is_on_its_way_through_the_program_stays_so(real, tmp_path):
    """As when a destructor, or C code that has failed, allocates: names are read without it, and then it is there again."""
    source, helper, bridge = (str(tmp_path / name) for name in ("helper.cpp", "helper.so", "bridge.so"))
    Path(source).write_text(WITH_ERROR)
    subprocess.run([*compiler.find_compiler(), "-shared", "-fPIC", "-o", helper, source], check=True)
    shutil.copy(real.path, bridge)  # with statics of its own
    c = ctypes.PyDLL(helper)
    own = types.SimpleNamespace(**{name.removeprefix("slb_"): function for name, function in
                                   bind("torch_bridge.cpp", ctypes.PyDLL(bridge), ctypes.CDLL(bridge))})
    addresses = [ctypes.cast(getattr(c, name), ctypes.c_void_p) for name in ("a_frame", "a_site", "an_allocation")]
    assert own.start_sites(*addresses, b"/not/ours/") == 0, own.error()
    with pytest.raises(KeyError, match="on its way"):
        c.with_error(ctypes.cast(own.site_now, ctypes.c_void_p))
    counted = {name: ctypes.c_uint.in_dll(c, name).value for name in ("frames", "sites", "unclean")}
    assert counted["frames"] > 1 and counted["sites"] == 1 and counted["unclean"] == 0


def test_deep_recursion_keeps_the_innermost_frames(real):
    def down(depth):
        return down(depth - 1) if depth else real.library.site_now()

    assert len(stack(real, down(400))) == 256


def test_an_operator_has_its_name_and_the_line_that_called_it(real):
    with torch.library._scoped_library("shardledger_test", "FRAGMENT") as library:
        library.define("probe(Tensor x) -> Tensor")
        seen = []

        def probe(x):
            seen.append(real.library.site_now())
            return x.clone()

        library.impl("probe", probe, "CPU")
        assert real.library.follow_sites(OPERATORS) == 0, real.library.error()
        torch.ops.shardledger_test.probe(torch.ones(2))
        line = line_here() - 1
        assert real.library.follow_sites(STACKS) == 0
        torch.ops.shardledger_test.probe(torch.ones(2))
    frame, operator, stack_of = real.sites[seen[0]]
    assert operator == "shardledger_test::probe" and stack_of == CALLER
    assert line in [number for name, number in stack(real, seen[0]) if name.startswith("test_an_operator")]
    assert real.sites[seen[1]][1] == "", "operators are followed in a sample of steps only"


def test_a_thread_without_python_frames_says_what_the_main_thread_waits_for(real):
    frame = sys._getframe()
    site = real.library.site_of_waiting(ctypes.c_void_p(id(frame)))
    assert real.sites[site][2] == WAITING and stack(real, site)[0][0] == "test_a_thread_without_python_frames_says_what_the_main_thread_waits_for"


def test_threads_intern_at_once(real):
    found, start = [], threading.Barrier(4)

    def work(number):
        start.wait()
        found.append({real.library.site_now() for _ in range(2000)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set().union(*found)) == 1, "the same stack is the same site on every thread"


# ---- uses ----


@pytest.fixture
def used(real):
    """Follows operators until the test has ended. Called: [(storage's address, operator)] since the last time."""
    def take():
        found = [(address, real.sites[site][1] if site else "") for address, site, _ in real.uses]
        real.uses.clear()
        return found

    real.watched.clear()
    assert real.library.follow_sites(OPERATORS) == 0
    take()
    yield take
    real.library.follow_sites(OFF)


def at(tensor):
    return tensor.untyped_storage().data_ptr()


def test_an_operator_uses_the_storages_of_its_tensors_and_of_their_views(used):
    a, b = torch.ones(32, 32), torch.ones(32, 32)
    used()
    torch.mm(a.t()[:16], b.view(4, 256).view(32, 32))
    assert {(at(a), "aten::mm"), (at(b), "aten::mm")} <= set(used())
    torch._foreach_add_([a, b], 1.0)
    assert {(at(a), "aten::_foreach_add_"), (at(b), "aten::_foreach_add_")} <= set(used())


def test_a_view_uses_nothing_nor_does_memory_without_a_value(used):
    a = torch.ones(32, 32)
    used()
    views = a.t(), a[1:], a.view(-1), a.detach(), a.reshape(64, 16), torch.empty_like(a), a.contiguous(), a.to(torch.float32)
    assert used() == []
    a.t().contiguous()
    assert at(a) in {address for address, _ in used()}, "it is copied after all"
    del views


def test_what_is_saved_for_backward_is_used_there(used):
    a = torch.ones(32, 32, requires_grad=True)
    b = torch.full((32, 32), 2.0)
    product = a * b
    used()
    loss = product.sum()
    assert (at(b), "aten::sum") not in used()
    loss.backward()
    assert at(b) in {address for address, _ in used()}


def test_an_autograd_function_uses_what_it_is_given(used):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.empty_like(x).fill_(1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    a = torch.ones(32, 32, requires_grad=True)
    used()
    Square.apply(a)
    assert (at(a), "Square") in used()


def test_small_storages_and_those_of_other_devices_are_left_out(used):
    torch.ones(8) + torch.ones(8)
    torch.ones(32, 32, device="meta") + torch.ones(32, 32, device="meta")
    assert used() == []


def test_how_long_the_operator_took_is_told(used, real):
    a = torch.ones(512, 512)
    used()
    torch.linalg.matrix_power(a, 64)
    lasted = [lasted for address, _, lasted in real.uses if address == at(a)]
    assert lasted and max(lasted) > 10_000


def test_uses_are_watched_while_operators_are_followed(real):
    real.watched.clear()
    for mode in (OPERATORS, BETWEEN, OPERATORS, STACKS, OFF):
        assert real.library.follow_sites(mode) == 0
    assert [on for on, _ in real.watched] == [1, 0] and real.watched[0][1]


def test_between_steps_so_many_operators_are_followed_and_then_none(real):
    a = torch.ones(32, 32)
    for mode in (OPERATORS, BETWEEN):
        real.library.follow_sites(mode)
    real.watched.clear()
    for _ in range(20010):
        a.add_(1)
    assert [on for on, _ in real.watched] == [0], "from there on nothing is known"
    real.uses.clear()
    a.add_(1)
    assert not real.uses
    real.library.follow_sites(OPERATORS)
    a.add_(1)
    assert real.uses and [on for on, _ in real.watched] == [0, 1]
    real.library.follow_sites(OFF)
