// Solver threads that outlive the call that started them.
#pragma once

#include "remat/export.h"

namespace REMAT_API remat {

/// True while a solver that did not stop in time still runs on its own thread, after its call has returned.
/// The process waits for that thread at exit, unless it ends by std::_Exit.
bool work_is_left_behind();

}  // namespace REMAT_API remat
