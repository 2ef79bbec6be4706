"""What runs on the device: the step, the norms, and the table that says where the tensors are.

Tensors of one dtype are cut into blocks of ``BLOCK`` entries, and a program takes one block of one tensor. The table
begins with the numbers of the rule, λ, 1 - β, the coupled and the decoupled decay and the sign of the gradients, each
as two halves. Five rows follow: the addresses of the parameters, of their gradients and of the momentum, the sizes, and
the number of blocks before each tensor. T is the dtype that is computed in.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from npgm.torch.triton.preconditioners import INFINITY

OFFSET = tl.constexpr(2**62)
"""Makes an int64 of any address or size: Triton types an integer by its value."""

RULE = tl.constexpr(10)
"""Entries of a table before its rows."""

LARGEST_32 = tl.constexpr(math.ldexp(1.0, 128) - math.ldexp(1.0, 104))
LARGEST_64 = tl.constexpr(math.ldexp(1.0 - math.ldexp(1.0, -53), 1024))


@triton.jit(do_not_specialize=["start", "values"])
def write(table, start, values):
    """Write numbers that come as arguments, of which a CUDA graph keeps its own copy."""
    for i in tl.static_range(len(values)):
        tl.store(table + start + i, values[i] - OFFSET)


@triton.jit(do_not_specialize=["n"])
def apply_step(
    table,
    n,
    factors,
    lr,
    grad_scale,
    applies,
    T: tl.constexpr,
    PARAMETER: tl.constexpr,
    MOMENTUM: tl.constexpr,
    BEFORE: tl.constexpr,
    PRECONDITION: tl.constexpr,
    PER_TENSOR: tl.constexpr,
    GRAD_SCALES: tl.constexpr,
    DECAYS: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIP: tl.constexpr,
):
    """Move one block of one tensor: MOMENTUM is its dtype or None, and PRECONDITION is None for an isotropic φ.

    GRAD_SCALES is whether each tensor has a grad_scale of its own.

    The factors are one for each tensor, or one for all: those of an isotropic φ, or the λ of a separable one, which is
    that of the table if they are None. BEFORE is whether the momentum averages gradients.
    """
    moving = True
    if applies is not None:
        moving = tl.load(applies)
    if moving:
        scale = number(table, 0).to(T)
        weight = number(table, 1).to(T)
        decay = number(table, 2).to(T)
        shrink = (1.0 - tl.load(lr) * number(table, 3)).to(T)
        rate = tl.load(lr).to(T)
        tensor, start = find(table, n, BLOCK)
        gradient_factor = factor_of(grad_scale, tensor * GRAD_SCALES, number(table, 4), T)
        x, gradient, momentum, size = tensor_of(table, n, tensor)
        factor = scale
        if factors is not None:
            factor = narrowed(tl.load(factors + tensor * PER_TENSOR), T)
        numbers = (factor, weight, decay, shrink, gradient_factor, rate)
        # vectors are loaded where both hold
        if ((x | gradient | momentum) % 16 == 0) & (start + BLOCK <= size):
            for i in range(start, start + BLOCK, STRIP):
                move_strip(x, gradient, momentum, i, size, numbers, T, PARAMETER, MOMENTUM, BEFORE, PRECONDITION,
                           DECAYS, STRIP, False)  # fmt: skip
        else:
            for i in range(start, tl.minimum(start + BLOCK, size), STRIP):
                move_strip(x, gradient, momentum, i, size, numbers, T, PARAMETER, MOMENTUM, BEFORE, PRECONDITION,
                           DECAYS, STRIP, True)  # fmt: skip


@triton.jit
def move_strip(
    x_address,
    gradient_address,
    momentum_address,
    start,
    size,
    numbers,
    T: tl.constexpr,
    PARAMETER: tl.constexpr,
    MOMENTUM: tl.constexpr,
    BEFORE: tl.constexpr,
    PRECONDITION: tl.constexpr,
    DECAYS: tl.constexpr,
    STRIP: tl.constexpr,
    PARTIAL: tl.constexpr,
):
    """Move one strip of a block, of which only a part lies in the tensor if PARTIAL."""
    factor, weight, decay, shrink, gradient_factor, rate = numbers
    x_pointer, mask = entries(x_address, start, size, PARAMETER, STRIP, PARTIAL)
    gradient_pointer, _ = entries(gradient_address, start, size, PARAMETER, STRIP, PARTIAL)
    x = tl.load(x_pointer, mask=mask).to(T)
    u = tl.load(gradient_pointer, mask=mask).to(T) * gradient_factor
    if DECAYS:
        u += decay * x
    if not BEFORE:
        u = direction(u, factor, PRECONDITION)
    if MOMENTUM is not None:
        momentum_pointer, _ = entries(momentum_address, start, size, MOMENTUM, STRIP, PARTIAL)
        mean = tl.load(momentum_pointer, mask=mask).to(T)
        u = mean + weight * (u - mean)
        tl.store(momentum_pointer, u.to(MOMENTUM), mask=mask)
    if BEFORE:
        u = direction(u, factor, PRECONDITION)
    tl.store(x_pointer, (shrink * x - rate * u).to(PARAMETER), mask=mask)


@triton.jit
def direction(y, factor, PRECONDITION: tl.constexpr):
    """The factor times y for an isotropic φ; else h*'(y/λ), λ being the factor.

    Finite quotients beyond the largest finite number are cut off there.
    """
    if PRECONDITION is None:
        return factor * y
    else:
        magnitude = tl.abs(y)
        a = magnitude / factor
        a = tl.where((a == INFINITY) & (magnitude < INFINITY), largest_finite(y.dtype), a)
        u = PRECONDITION(a)
        u = tl.where(y < 0, -u, u)
        return tl.where(y == y, u, y)  # minima and maxima on a device drop NaN


@triton.jit(do_not_specialize=["n", "blocks"])
def measure(
    table,
    n,
    blocks,
    parts,
    grad_scale,
    T: tl.constexpr,
    PARAMETER: tl.constexpr,
    MOMENTUM: tl.constexpr,
    GRAD_SCALES: tl.constexpr,
    DECAYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write max|y| and ‖y‖ / max|y| of each block, in two rows; both are not finite if an entry of y is not.

    MOMENTUM is the dtype of that which averages gradients, and then y is the next momentum, or None.
    """
    weight = number(table, 1).to(T)
    decay = number(table, 2).to(T)
    tensor, start = find(table, n, BLOCK)
    gradient_factor = factor_of(grad_scale, tensor * GRAD_SCALES, number(table, 4), T)
    x, gradient, momentum, size = tensor_of(table, n, tensor)
    if not DECAYS:
        x = gradient
    numbers = (weight, decay, gradient_factor)
    if ((x | gradient | momentum) % 16 == 0) & (start + BLOCK <= size):
        largest, ratio = moments(x, gradient, momentum, start, size, numbers, T, PARAMETER, MOMENTUM, DECAYS, BLOCK,
                                 False)  # fmt: skip
    else:
        largest, ratio = moments(x, gradient, momentum, start, size, numbers, T, PARAMETER, MOMENTUM, DECAYS, BLOCK,
                                 True)  # fmt: skip
    block = tl.program_id(0)
    tl.store(parts + block, largest)
    tl.store(parts + blocks + block, ratio)


@triton.jit
def moments(
    x_address,
    gradient_address,
    momentum_address,
    start,
    size,
    numbers,
    T: tl.constexpr,
    PARAMETER: tl.constexpr,
    MOMENTUM: tl.constexpr,
    DECAYS: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTIAL: tl.constexpr,
):
    """Return max|y| and ‖y‖ / max|y| of one block, of which only a part lies in the tensor if PARTIAL."""
    weight, decay, gradient_factor = numbers
    pointer, mask = entries(gradient_address, start, size, PARAMETER, BLOCK, PARTIAL)
    y = tl.load(pointer, mask=mask).to(T) * gradient_factor
    if DECAYS:
        x_pointer, _ = entries(x_address, start, size, PARAMETER, BLOCK, PARTIAL)
        y += decay * tl.load(x_pointer, mask=mask).to(T)
    if MOMENTUM is not None:
        momentum_pointer, _ = entries(momentum_address, start, size, MOMENTUM, BLOCK, PARTIAL)
        mean = tl.load(momentum_pointer, mask=mask).to(T)
        y = mean + weight * (y - mean)
    if PARTIAL:
        y = tl.where(mask, y, 0.0)
    largest = tl.max(tl.abs(y), 0)
    # entries are divided by a power of two next to the largest, so that no square overflows and none that counts
    # underflows: products with its inverse are exact
    if T == tl.float64:
        bits = largest.to(tl.int64, bitcast=True) & 0x7FF0000000000000
        bits = tl.minimum(tl.maximum(bits, 1 << 52), 2045 << 52)
        unit = bits.to(tl.float64, bitcast=True)
        inverse = ((2046 << 52) - bits).to(tl.float64, bitcast=True)
    else:
        bits = largest.to(tl.int32, bitcast=True) & 0x7F800000
        bits = tl.minimum(tl.maximum(bits, 1 << 23), 253 << 23)
        unit = bits.to(tl.float32, bitcast=True)
        inverse = ((254 << 23) - bits).to(tl.float32, bitcast=True)
    z = y * inverse
    squares = tl.sum(z * z, 0).to(tl.float64)
    largest = largest.to(tl.float64)
    return or_nan(largest, squares), tl.sqrt(squares) * (unit.to(tl.float64) / divisor_of(largest))


@triton.jit(do_not_specialize=["n", "blocks"])
def combine(table, n, blocks, parts, norms, PER_TENSOR: tl.constexpr, WIDTH: tl.constexpr):
    """Make max|y| and ‖y‖ / max|y| of a tensor, or of all, of those of its blocks, always in the same order."""
    vector = tl.program_id(0)
    first = tl.zeros((), tl.int64)
    last = first + blocks
    if PER_TENSOR:
        starts = table + RULE + 4 * n
        first = tl.load(starts + vector)
        last = tl.load(starts + vector + 1)
    lanes = tl.arange(0, WIDTH)
    maxima = tl.zeros((WIDTH,), tl.float64)
    for i in range(first, last, WIDTH):
        maxima = tl.maximum(maxima, tl.load(parts + i + lanes, mask=i + lanes < last, other=0.0))
    largest = tl.max(maxima, 0)
    divisor = divisor_of(largest)
    sums = tl.zeros((WIDTH,), tl.float64)
    for i in range(first, last, WIDTH):
        mask = i + lanes < last
        part = tl.load(parts + i + lanes, mask=mask, other=0.0) / divisor
        part *= tl.load(parts + blocks + i + lanes, mask=mask, other=0.0)
        sums += part * part
    squares = tl.sum(sums, 0)
    tl.store(norms + vector, or_nan(largest, squares))
    tl.store(norms + tl.num_programs(0) + vector, tl.sqrt(squares))


@triton.jit
def or_nan(largest, squares):
    """Return the maximum, NaN where the sum of squares is: a maximum on a device drops NaN, and a sum does not."""
    return tl.where(squares == squares, largest, squares)


@triton.jit
def divisor_of(largest):
    """Return the maximum to divide by: 1 in place of zero and of what is not finite."""
    return tl.where((largest > 0) & (largest < INFINITY), largest, 1.0)


@triton.jit
def number(table, i):
    """Return a number of the rule, in float64."""
    low = tl.load(table + 2 * i)
    high = tl.load(table + 2 * i + 1)
    return ((high << 32) | low).to(tl.float64, bitcast=True)


@triton.jit
def tensor_of(table, n, tensor):
    """Return the addresses of a parameter, its gradient and its momentum, and their size."""
    row = table + RULE + tensor
    return tl.load(row), tl.load(row + n), tl.load(row + 2 * n), tl.load(row + 3 * n)


@triton.jit
def find(table, n, BLOCK: tl.constexpr):
    """Return the tensor that the block of this program is of, and the entry at which the block starts."""
    block = tl.program_id(0).to(tl.int64)
    starts = table + RULE + 4 * n
    low = n * 0
    high = n
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) <= block:
            low = middle
        else:
            high = middle
    return low, (block - tl.load(starts + low)) * BLOCK


@triton.jit
def entries(address, start, size, DTYPE: tl.constexpr, LENGTH: tl.constexpr, PARTIAL: tl.constexpr):
    """Return pointers to the entries from ``start`` on, and which of them there are; None if all are."""
    pointer = address.to(tl.pointer_type(DTYPE))
    i = start + tl.arange(0, LENGTH)
    if PARTIAL:
        return pointer + i, i < size
    else:
        return tl.multiple_of(pointer, 16) + i, None


@triton.jit
def factor_of(grad_scale, place, sign, T: tl.constexpr):
    """What the gradients are multiplied by to be those of the loss to minimise."""
    if grad_scale is None:
        return sign.to(T)
    else:
        return (sign / tl.load(grad_scale + place).to(tl.float64)).to(T)


@triton.jit
def narrowed(value, T: tl.constexpr):
    """Cut a coefficient off at the largest number of its dtype: what it multiplies there is zero."""
    return tl.where(value > largest_finite(T), largest_finite(T), value).to(T)


@triton.jit
def largest_finite(T: tl.constexpr):
    """Return the largest finite number of float32 or float64."""
    if T == tl.float64:
        return LARGEST_64
    else:
        return LARGEST_32
