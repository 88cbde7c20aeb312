// Work of the ops, and the time it takes on a device.
#pragma once

#include "generate/program.h"
#include "remat/generate.h"

namespace remat::generate {

/// Floating-point operations of an op: exact counts for products and convolutions (two a
/// multiply-and-add), a small factor times the elements for the rest.
double flop_count(const Program& program, Node node);
/// Bytes read and written.
double byte_count(const Program& program, Node node);
/// The roofline: launch + max(flops / peak flops, bytes / bandwidth), in nanoseconds, at least 1.
Duration roofline(const Program& program, Node node, const Device& device);

}  // namespace remat::generate
