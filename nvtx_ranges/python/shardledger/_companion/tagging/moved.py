"""Notices that what was tagged lies elsewhere by now, and tags it again: a model that was offloaded and comes back, a
state dict that was loaded, weights that were exchanged for their average, optimizer state that was made anew.

Looking at everything would cost milliseconds a step. So a few tensors of each model and optimizer are looked at, the
first, the middle and the last one, and of a model another one each time; where one is elsewhere, all of it is tagged
again. An address alone does not tell: what comes back often gets the address that it had, in an allocation that has no
tag. So the storage is compared, by a weak reference that keeps no memory of the device.

Parameters and buffers are looked at where a step begins and ends, and where their model is called from outside.
Optimizer state and gradients are compared from one step's end to the next one's beginning: what moves inside of a step is
what backward and the optimizer made, and has its category from there.
"""

import weakref

import torch

from .. import guard
from ..hooks import cycle, megatron, modules
from ..tensors import unseen
from . import tags

_AGAIN = (1, 2)  # steps in which whole models are looked at: early in training single parameters move
_AT_ONCE = 8  # models, and optimizers; of more the next ones the next time

_Parameter = torch.nn.Parameter
_attribute = object.__getattribute__  # past what a module's class does when it is asked for one

if "_models" not in globals():  # a reloaded module keeps what it watches
    _models = {}  # id(root) → _Model
    _optimizers = {}  # id(optimizer) → _Optimizer
    _turn = 0


def _is_same(held, tensor):
    """Whether a tensor has the memory that it had. held: None where there was none to tag."""
    if held is None:
        return tensor is None or tags.storage_of(tensor) is None
    return tensor is not None and held.is_of(modules.local(tensor).untyped_storage())


def _held_anew(held, tensors):
    return [old if _is_same(old, tensor) else tags.hold(tensor) for old, tensor in zip(held, tensors)]


class _Model:
    __slots__ = ("root", "only_new", "places", "fixed", "keys", "turn", "looked_in")

    def __init__(self, root, only_new):
        self.root = weakref.ref(root, lambda gone, key=id(root): _model_is_gone(key, gone))
        self.only_new = only_new
        self.places, self.fixed, self.keys = [], [], []
        self.turn = 0
        self.looked_in = 0
        self.tag()

    def tag(self):
        """Tags what is not where it was, and notes where to look from now on."""
        root = self.root()
        if root is None:
            return
        self.places, self.keys = tags.model(root, self.only_new)
        megatron.tag(modules.members(root))
        last = len(self.places) - 1
        self.fixed = [self.places[i] for i in sorted({0, len(self.places) // 2, last}) if last >= 0]

    def look(self):
        """Written out, since it is what a step costs."""
        if not self.places:
            return
        self.turn = (self.turn + 1) % len(self.places)
        held_by_key = tags.held
        for holder, name, key in (*self.fixed, self.places[self.turn]):
            tensor = holder()
            if name is not None and tensor is not None:
                tensor = (_attribute(tensor, "__dict__").get("_parameters") or {}).get(name)
            held = held_by_key.get(key)
            if held is None or tensor is None:
                if _is_same(held, tensor):
                    continue
            else:
                storage = (tensor if type(tensor) is _Parameter else modules.local(tensor)).untyped_storage()
                if held.cdata == storage._cdata and held.address == storage.data_ptr():
                    continue
            self.tag()
            return


def _model_is_gone(key, reference):
    watched = _models.get(key)
    if watched is not None and watched.root is reference:  # else the address already belongs to another one
        del _models[key]
        for held in watched.keys:
            tags.held.pop(held, None)


def model(root, only_new=False):
    """Tags a registered model now, and again where it moves."""
    _models[id(root)] = _Model(root, only_new)


def called(root, step):
    """A model is called from outside any other."""
    watched = _models.get(id(root))
    if watched is None or watched.root() is not root:
        return
    if step in _AGAIN and watched.looked_in != step:
        watched.looked_in = step
        _each((watched,), _Model.tag)
    else:
        _each((watched,), _Model.look)


class _Optimizer:
    __slots__ = ("optimizer", "states", "tensors", "places", "held", "parameter", "gradient", "is_named")

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer, lambda gone, key=id(optimizer): _optimizer_is_gone(key, gone))
        self.states = self.tensors = 0  # entries of its state, and tensors in them, that were tagged
        self.places = []  # (weak reference to a parameter, key of its state)
        self.held = []
        parameters = cycle.parameters_of(optimizer)
        self.parameter = weakref.ref(parameters[len(parameters) // 2]) if parameters else lambda: None
        self.gradient = None
        self.is_named = False  # its model was known when its state was tagged

    def look(self):
        """At a step's beginning."""
        optimizer = self.optimizer()
        if optimizer is None:
            return
        state = _state(optimizer)
        if (len(state) != self.states or self.is_named != tags.is_named(self.parameter())
                or not all(map(_is_same, self.held, self._tensors(state)))):
            self._tag_state(optimizer, state)
        gradient = self._gradient()
        if self.gradient is not None and gradient is not None and not _is_same(self.gradient, gradient):
            tags.gradients(optimizer)

    def note(self):
        """At a step's end."""
        optimizer = self.optimizer()
        if optimizer is None:
            return
        state = _state(optimizer)
        if len(state) != self.states:
            self._tag_state(optimizer, state)
        else:
            self.held = _held_anew(self.held, self._tensors(state))
        (self.gradient,) = _held_anew([self.gradient], [self._gradient()])

    def made_state(self):
        """After one of the optimizer's first steps."""
        optimizer = self.optimizer()
        if tags.count_of_state(optimizer) != self.tensors:
            self._tag_state(optimizer, _state(optimizer))

    def _tag_state(self, optimizer, state):
        self.tensors = tags.optimizer_state(optimizer)
        self.is_named = tags.is_named(self.parameter())
        self.states = len(state)
        parameters = list(state)
        self.places = [(weakref.ref(parameter), key) for parameter in (parameters[:1] + parameters[1:][-1:])
                       for key in _key_on_device(state.get(parameter))]
        self.held = [tags.hold(tensor) for tensor in self._tensors(state)]

    def _tensors(self, state):
        found = []
        for reference, key in self.places:
            values = state.get(reference())
            found.append(values.get(key) if isinstance(values, dict) else None)
        return found

    def _gradient(self):
        parameter = self.parameter()
        return parameter.grad if parameter is not None else None


def _optimizer_is_gone(key, reference):
    watched = _optimizers.get(key)
    if watched is not None and watched.optimizer is reference:
        del _optimizers[key]


def _state(optimizer):
    state = optimizer.state
    return state if isinstance(state, dict) else {}


def _key_on_device(values):
    """The first one, if any: counters often stay on the CPU. What is offloaded now has it elsewhere for a while."""
    found = [(tags.storage_of(value) is None, value.dim() == 0, key) for key, value in values.items()
             if tags.is_tensor(value)] if isinstance(values, dict) else []
    return [min(found, key=lambda one: one[:2])[2]] if found else []


def _watched(optimizer):
    watched = _optimizers.get(id(optimizer))
    if watched is None or watched.optimizer() is not optimizer:
        watched = _optimizers[id(optimizer)] = _Optimizer(optimizer)
    return watched


def made_state(optimizer):
    _each((_watched(optimizer),), _Optimizer.made_state)


def _watched_optimizers():
    some = [optimizer() for optimizer in _some(list(cycle._made.values()))]
    return [_watched(optimizer) for optimizer in some if optimizer is not None]


def _some(every):
    if len(every) <= _AT_ONCE:
        return every
    start = _turn * _AT_ONCE % len(every)
    return (every + every)[start:start + _AT_ONCE]


def step_begins():
    global _turn
    _turn += 1
    _each(_some(list(_models.values())), _Model.look)
    _each(_watched_optimizers(), _Optimizer.look)


def step_ends():
    _each(_some(list(_models.values())), _Model.look)
    _each(_watched_optimizers(), _Optimizer.note)


def tag_all():
    """What every model holds now, where it has no tag yet."""
    _each(list(_models.values()), _Model.tag)


@unseen
def _each(every, look):
    for watched in every:
        try:
            look(watched)
        except Exception as error:  # one that can't be read harms nobody but itself: it keeps the tags that it has
            guard.say_once("moved", f"whether a model or its optimizer's state moved can't be seen ({guard.describe(error)})")
