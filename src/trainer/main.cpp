// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/trainer/trainer.hpp>

int main(int argc, char** argv) { lockstep::trainer::run(argc, argv); }
