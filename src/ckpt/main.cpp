// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/ckpt/ckpt.hpp>

int main(int argc, char** argv) { return lockstep::ckpt::run(argc, argv); }
