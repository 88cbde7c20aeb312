// Differentiation rules of elementwise ops, shapes and linear algebra.
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
    case Code::kSub: return side == 0 ? g : unary(p, Code::kNeg, g);
    case Code::kMul: return binary(p, Code::kMul, g, b.in(1 - side));
    case Code::kDiv: {
      if (side == 0) return binary(p, Code::kDiv, g, b.in(1));
      const Tensor quotient = binary(p, Code::kDiv, binary(p, Code::kDiv, unary(p, Code::kNeg, b.in(0)), b.in(1)), b.in(1));
      return binary(p, Code::kMul, g, quotient);
    }
    default: return g;
  }
}

void differentiate_binary(Backward& b, Code code) {
  const Tensor axes = stretched_axes(b);
  for (int side : {0, 1}) {
    if (b.wants(side)) b.give(side, unstretch(b, gradient_of_binary(b, code, side), side, axes));
  }
}

/// TensorFlow tiles the gradient of a sum by a count that it computes from the shapes.
Tensor stretch(Backward& b, Tensor g) {
  Program& p = b.p;
  const Shape shape = p.shape(b.in(0));
  if (!p.primitives()) return broadcast_to(p, g, shape);
  const Tensor input_shape = p.emit(Code::kShapeOf, {b.in(0)}, Shape{shape.rank});
  const Tensor output_shape = p.emit(Code::kIndices, {input_shape}, Shape{shape.rank});
  const Tensor tiles = p.emit(Code::kIndices, {input_shape, output_shape}, Shape{shape.rank});
  const Tensor flat = p.emit(Code::kReshape, {g, output_shape}, p.shape(g));
  return p.emit(Code::kBroadcastTo, {flat, tiles}, shape);
}

double stretch_factor(const Backward& b) {
  return static_cast<double>(b.p.shape(b.in(0)).elements()) / static_cast<double>(b.p.shape(b.out()).elements());
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
    case Code::kDiv: differentiate_binary(b, code); return true;
    case Code::kNeg: b.give(0, unary(p, Code::kNeg, g)); return true;
    case Code::kScale: b.give(0, scale(p, g, b.attributes().x)); return true;
    case Code::kSquare: b.give(0, binary(p, Code::kMul, g, scale(p, b.in(0), 2))); return true;
    case Code::kRsqrt: b.give(0, p.emit(Code::kRsqrtGrad, {b.out(), g}, p.shape(g))); return true;
    case Code::kRelu: b.give(0, p.emit(Code::kReluGrad, {g, b.out()}, p.shape(g), b.attributes())); return true;
    case Code::kGelu: b.give(0, p.emit(Code::kGeluGrad, {g, b.in(0)}, p.shape(g))); return true;
    case Code::kIdentity: b.give(0, g); return true;
    case Code::kL2Loss: b.give(0, binary(p, Code::kMul, b.in(0), g)); return true;
    default: return false;
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
      for (int i = 0; i < rank; ++i) inverse.n[static_cast<std::size_t>(a.n[static_cast<std::size_t>(i)])] = i;
      b.give(0, p.emit(Code::kTranspose, {g}, p.shape(b.in(0)), inverse));
      return true;
    }
    case Code::kBroadcastTo: b.give(0, sum_to(p, g, p.shape(b.in(0)))); return true;
    case Code::kSumTo:
    case Code::kReduceSum: b.give(0, stretch(b, g)); return true;
    case Code::kReduceMean: b.give(0, stretch(b, scale(p, g, 1 / stretch_factor(b)))); return true;
    case Code::kConcat: {
      std::int64_t begin = 0;
      const int count = static_cast<int>(p.inputs[b.node].size());
      for (int i = 0; i < count; ++i) {
        const std::int64_t length = p.shape(b.in(i))[a.n[0]];
        if (b.wants(i)) b.give(i, slice(p, g, a.n[0], begin, length));
        begin += length;
      }
      return true;
    }
    case Code::kSlice: b.give(0, p.emit(Code::kSlicePad, {g}, p.shape(b.in(0)), a)); return true;
    default: return false;
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
    default: return false;
  }
}

}  // namespace remat::generate
