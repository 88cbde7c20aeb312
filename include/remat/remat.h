// The whole library: graphs, plans, planners, bounds, sweeps, files, generators.
#pragma once

#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/graph.h"
#include "remat/hiremate.h"
#include "remat/ids.h"
#include "remat/io.h"
#include "remat/keep_all.h"
#include "remat/left_behind.h"
#include "remat/limits.h"
#include "remat/plan.h"
#include "remat/planner.h"
#include "remat/quantity.h"
#include "remat/random.h"
#include "remat/store.h"
#include "remat/sweep.h"
