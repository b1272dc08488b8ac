// SPDX-License-Identifier: BSD-3-Clause
// lockstep.h in C++98, as in other languages.
#include <lockstep/lockstep.h>

bool is_done(int code) { return code == LOCKSTEP_DONE; }
