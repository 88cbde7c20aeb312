// What is still at work when a call has ended.
#pragma once

#include "remat/export.h"

namespace REMAT_API remat {

/// Whether a solver that did not stop in time still works on a thread of its own, after the call that asked
/// for it has ended. The end of the process waits for it, unless it ends by std::_Exit.
bool work_is_left_behind();

}  // namespace REMAT_API remat
