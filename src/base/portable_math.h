// Logarithms and powers by basic arithmetic only, equal on every machine. C libraries differ in the last
// bits, which would change plans.
#pragma once

namespace remat {

/// -ln(u) for u in (0, 1], to about 1e-6.
double minus_log(double u);
/// e^x for |x| <= 10 or so, to about 1e-6.
double exponential(double x);
/// from * (to / from)^fraction for positive numbers, to about 1e-6.
double geometric(double from, double to, double fraction);

}  // namespace remat
