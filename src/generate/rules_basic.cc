// Differentiation rules of elementwise ops, shapes and linear algebra.
#include "base/numbers.h"
#include "generate/backward.h"
#include "generate/ops.h"

namespace remat::generate {
namespace {

/// The gradient of one side of an elementwise op, summed where the op stretched that side. Primitive
/// programs sum and reshape always, as told by arithmetic on shapes at run time.
Tensor unstretch(Backward& b, Tensor gradient, int side, Tensor axes) {
  Program& p = b.p;
  const Shape shape = p.shape(b.in(side));
  if (!p.primitives()) return sum_to(p, gradient, shape);
  const Tensor sum = p.emit(Code::kSumTo, {gradient, Tensor(axes.index() + side)}, shape);
  const Tensor target = p.emit(Code::kShapeOf, {b.in(side)}, Shape{shape.rank});
  return p.emit(Code::kReshape, {sum, target}, shape);
}

/// The dimensions to sum for either side, made from the two shapes (primitive programs only).
Tensor stretched_axes(Backward& b) {
  Program& p = b.p;
  if (!p.primitives()) return Tensor::none();
  const Shape a{p.shape(b.in(0)).rank}, c{p.shape(b.in(1)).rank};
  const Tensor shape_a = p.emit(Code::kShapeOf, {b.in(0)}, a);
  const Tensor shape_b = p.emit(Code::kShapeOf, {b.in(1)}, c);
  return p.emit_all(Code::kIndices, {shape_a, shape_b}, {Output{a}, Output{c}});
}

Tensor gradient_of_binary(Backward& b, Code code, int side) {
  Program& p = b.p;
  const Tensor g = b.grad();
  switch (code) {
    case Code::kSub:
      return side == 0 ? g : unary(p, Code::kNeg, g);
    case Code::kMul:
      return binary(p, Code::kMul, g, b.in(1 - side));
    case Code::kDiv: {
      if (side == 0) return binary(p, Code::kDiv, g, b.in(1));
      const Tensor quotient =
          binary(p, Code::kDiv, binary(p, Code::kDiv, unary(p, Code::kNeg, b.in(0)), b.in(1)), b.in(1));
      return binary(p, Code::kMul, g, quotient);
    }
    default:
      return g;
  }
}

void differentiate_binary(Backward& b, Code code) {
  const Tensor axes = stretched_axes(b);
  for (int side : {0, 1}) {
    if (b.wants(side)) b.give(side, unstretch(b, gradient_of_binary(b, code, side), side, axes));
  }
}

/// TensorFlow tiles the gradient of a sum by counts that it computes from the shapes at run time: the summed
/// dimensions made positive, stitched into the shape as ones, and divided into it.
Tensor stretch(Backward& b, Tensor g) {
  Program& p = b.p;
  const Shape shape = p.shape(b.in(0)), vector{shape.rank};
  if (!p.primitives()) return broadcast_to(p, g, shape);
  const auto arithmetic = [&](std::initializer_list<Tensor> of) {
    return p.emit(Code::kIndices, of, vector);
  };
  const Tensor dims = p.emit(Code::kShapeOf, {b.in(0)}, vector);
  const Tensor rank = constant(p, shape.rank);
  const Tensor axes = arithmetic({arithmetic({b.in(1), rank}), rank});
  const Tensor range = arithmetic({constant(p, 0), rank, constant(p, 1)});
  const Tensor ones = arithmetic({constant(p, 1), constant(p, 1)});
  const Tensor stitched = arithmetic({range, axes, dims, ones});
  const Tensor tiles = arithmetic({dims, arithmetic({stitched, constant(p, 1)})});
  const Tensor flat = p.emit(Code::kReshape, {g, stitched}, p.shape(g));
  return p.emit(Code::kBroadcastTo, {flat, tiles}, shape);
}

/// The gradient of a mean is that of the sum, divided by a count that TensorFlow takes from the shapes.
Tensor differentiate_mean(Backward& b) {
  Program& p = b.p;
  const Shape from = p.shape(b.in(0)), to = p.shape(b.out());
  const double count = real(from.elements()) / real(to.elements());
  if (!p.primitives()) return stretch(b, scale(p, b.grad(), 1 / count));
  const Shape vector{from.rank};
  const Tensor sum = stretch(b, b.grad());
  const auto elements = [&](Tensor t) {
    return p.emit(Code::kIndices, {p.emit(Code::kShapeOf, {t}, vector), constant(p, 0)}, Shape{});
  };
  const Tensor before = elements(b.in(0)), after = elements(b.out());
  const Tensor at_least_one = p.emit(Code::kIndices, {after, constant(p, 1)}, Shape{});
  const Tensor ratio = p.emit(Code::kIndices, {before, at_least_one}, Shape{});
  return binary(p, Code::kDiv, sum, p.emit(Code::kConstant, {ratio}, Shape{}, {{}, count}));
}

}  // namespace

bool differentiate_elementwise(Backward& b) {
  Program& p = b.p;
  const Code code = p.nodes[b.node].code;
  const Tensor g = b.grad();
  switch (code) {
    case Code::kAdd:
    case Code::kSub:
    case Code::kMul:
    case Code::kDiv:
      differentiate_binary(b, code);
      return true;
    case Code::kNeg:
      b.give(0, unary(p, Code::kNeg, g));
      return true;
    case Code::kScale:
      b.give(0, scale(p, g, b.attributes().x));
      return true;
    case Code::kSquare:
      b.give(0, binary(p, Code::kMul, g, scale(p, b.in(0), 2)));
      return true;
    case Code::kRsqrt:
      b.give(0, p.emit(Code::kRsqrtGrad, {b.out(), g}, p.shape(g)));
      return true;
    case Code::kRelu:
      b.give(0, p.emit(Code::kReluGrad, {g, b.out()}, p.shape(g), b.attributes()));
      return true;
    case Code::kGelu:
      b.give(0, p.emit(Code::kGeluGrad, {g, b.in(0)}, p.shape(g)));
      return true;
    case Code::kIdentity:
      b.give(0, g);
      return true;
    case Code::kL2Loss:
      b.give(0, binary(p, Code::kMul, b.in(0), g));
      return true;
    default:
      return false;
  }
}

bool differentiate_shapes(Backward& b) {
  Program& p = b.p;
  const Tensor g = b.grad();
  const Attributes a = b.attributes();
  switch (p.nodes[b.node].code) {
    case Code::kReshape: {
      const Shape shape = p.shape(b.in(0));
      if (!p.primitives()) {
        b.give(0, reshape(p, g, shape));
      } else {
        const Tensor target = p.emit(Code::kShapeOf, {b.in(0)}, Shape{shape.rank});
        b.give(0, p.emit(Code::kReshape, {g, target}, shape));
      }
      return true;
    }
    case Code::kTranspose: {
      const int rank = p.shape(g).rank;
      Attributes inverse;
      for (int i = 0; i < rank; ++i) inverse.n[at(a.n[at(i)])] = i;
      if (p.primitives()) {
        const Tensor order = p.emit(Code::kIndices, {b.in(1)}, Shape{rank});
        b.give(0, p.emit(Code::kTranspose, {g, order}, p.shape(b.in(0)), inverse));
      } else {
        b.give(0, p.emit(Code::kTranspose, {g}, p.shape(b.in(0)), inverse));
      }
      return true;
    }
    case Code::kBroadcastTo:
      b.give(0, sum_to(p, g, p.shape(b.in(0))));
      return true;
    case Code::kSumTo:
      b.give(0, broadcast_to(p, g, p.shape(b.in(0))));
      return true;
    case Code::kReduceSum:
      b.give(0, stretch(b, g));
      return true;
    case Code::kReduceMean:
      b.give(0, differentiate_mean(b));
      return true;
    case Code::kConcat: {
      std::int64_t begin = 0;
      const int count = narrow<int>(p.inputs[b.node].size());
      for (int i = 0; i < count; ++i) {
        const std::int64_t length = p.shape(b.in(i))[a.n[0]];
        if (b.wants(i)) b.give(i, slice(p, g, a.n[0], begin, length));
        begin += length;
      }
      return true;
    }
    case Code::kSlice:
      b.give(0, p.emit(Code::kSlicePad, {g}, p.shape(b.in(0)), a));
      return true;
    default:
      return false;
  }
}

bool differentiate_algebra(Backward& b) {
  Program& p = b.p;
  const Tensor g = b.grad();
  const Attributes a = b.attributes();
  switch (p.nodes[b.node].code) {
    case Code::kDot: {
      // With C = op(A) op(B): dA = g op(B)^T, dB = op(A)^T g, transposed again where op transposes.
      const bool ta = a.n[0] != 0, tb = a.n[1] != 0;
      if (b.wants(0)) b.give(0, ta ? dot(p, b.in(1), g, tb, true) : dot(p, g, b.in(1), false, !tb));
      if (b.wants(1)) b.give(1, tb ? dot(p, g, b.in(0), true, ta) : dot(p, b.in(0), g, !ta, false));
      return true;
    }
    case Code::kLinear: {
      if (b.wants(0)) b.give(0, dot(p, g, b.in(1), false, true));
      if (b.wants(1)) b.give(1, dot(p, b.in(0), g, true, false));
      if (b.wants(2)) b.give(2, p.emit(Code::kSumTo, {g}, p.shape(b.in(2))));
      return true;
    }
    case Code::kBiasAdd: {
      if (b.wants(1)) b.give(1, p.emit(Code::kBiasGrad, {g}, p.shape(b.in(1)), a));
      if (b.wants(0)) b.give(0, g);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace remat::generate
