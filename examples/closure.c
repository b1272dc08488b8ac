/* SPDX-License-Identifier: BSD-3-Clause */
/* A closure: a solver of the Burgers equation on 32 cells learns what it lacks compared with 256 cells.
 *
 *     mpirun -np 2 closure [STEPS]
 *
 * A sample has two inputs on the coarse grid, the velocity in m/s and its change in one coarse step, and the target is
 * the missing change. A mask leaves out the cells next to a shock. Every rank has solutions of its own. The program
 * prints the errors of the coarse solver without and with the network, and ends with 1 if it does not help. */
#include <lockstep/lockstep.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COARSE = 32, RATIO = 8, FINE = COARSE * RATIO, SUBSTEPS = 40, SAMPLES = 16, LENGTH = 12 };

static const double kPi = 3.14159265358979323846;

/* One explicit step of u_t + (u^2 / 2)_x = nu u_xx with periodic cells of width dx (Lax and Friedrichs, local). */
static void advance(double* u, int cells, double dx, double dt) {
  const double nu = 0.02;
  double flux[FINE];
  for (int i = 0; i < cells; ++i) {
    const double left = u[i], right = u[(i + 1) % cells];
    const double speed = fmax(fabs(left), fabs(right));
    flux[i] = 0.25 * (left * left + right * right) - 0.5 * speed * (right - left) - nu * (right - left) / dx;
  }
  for (int i = cells - 1; i >= 0; --i) u[i] -= dt / dx * (flux[i] - flux[(i + cells - 1) % cells]);
}

static void step_fine(double* u) {
  for (int s = 0; s < SUBSTEPS; ++s) advance(u, FINE, 2 * kPi / FINE, 0.05 / SUBSTEPS);
}

static void step_coarse(double* u) {
  for (int s = 0; s < 4; ++s) advance(u, COARSE, 2 * kPi / COARSE, 0.05 / 4);
}

static void filter(const double* fine, double* coarse) {
  for (int i = 0; i < COARSE; ++i) {
    coarse[i] = 0;
    for (int j = 0; j < RATIO; ++j) coarse[i] += fine[i * RATIO + j] / RATIO;
  }
}

/* Initial velocities that depend on `seed` only. */
static void begin(double* u, unsigned seed) {
  double amplitude[3], phase[3];
  for (int k = 0; k < 3; ++k) {
    seed = seed * 1664525u + 1013904223u;
    amplitude[k] = 0.5 + (seed >> 16) / 65536.0;
    seed = seed * 1664525u + 1013904223u;
    phase[k] = 2 * kPi * (seed >> 16) / 65536.0;
  }
  for (int i = 0; i < FINE; ++i) {
    u[i] = 0;
    for (int k = 0; k < 3; ++k) u[i] += amplitude[k] * sin((k + 1) * 2 * kPi * i / FINE + phase[k]) / (k + 1);
  }
}

/* The change of `u` in one coarse step. */
static void fill_change(const double* u, double* change) {
  double next[COARSE];
  memcpy(next, u, sizeof next);
  step_coarse(next);
  for (int i = 0; i < COARSE; ++i) change[i] = next[i] - u[i];
}

static void require(int code, const lockstep_run* run) {
  if (code == LOCKSTEP_DONE) return;
  fprintf(stderr, "closure: %s\n", lockstep_error(run));
  MPI_Abort(MPI_COMM_WORLD, code);
}

static double distance(const double* a, const double* b) {
  double sum = 0, norm = 0;
  for (int i = 0; i < COARSE; ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return sqrt(sum / norm);
}

int main(int argc, char** argv) {
  static double u[SAMPLES][FINE], velocity[SAMPLES][1][COARSE], change[SAMPLES][1][COARSE];
  static double targets[SAMPLES][1][COARSE];
  static uint8_t mask[SAMPLES][1][COARSE];
  const char* const settings[] = {"model.name=fno",
                                  "model.modes=12",
                                  "model.width=16",
                                  "data.input_shape=2,32",
                                  "data.target_shape=1,32",
                                  "optim.name=adamw",
                                  "optim.lr=0.004",
                                  "run.threads=1",
                                  "sched.name=cosine",
                                  "train.max_steps=600",
                                  "data.join_keys=velocity,change"};
  const int64_t sizes[] = {SAMPLES, 1, COARSE};
  int rank, steps = 600;
  lockstep_run* run;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 1) steps = atoi(argv[1]);
  require(lockstep_open(settings, (int)(sizeof settings / sizeof *settings), MPI_Comm_c2f(MPI_COMM_WORLD), &run), NULL);
  const lockstep_array arrays[] = {lockstep_array_c("velocity", LOCKSTEP_FLOAT64, 3, sizes, velocity),
                                   lockstep_array_c("change", LOCKSTEP_FLOAT64, 3, sizes, change),
                                   lockstep_array_c("target", LOCKSTEP_FLOAT64, 3, sizes, targets),
                                   lockstep_array_c("mask", LOCKSTEP_UINT8, 3, sizes, mask)};
  for (int step = 0; step < steps; ++step) {
    double loss;
    for (int s = 0; s < SAMPLES; ++s) {
      double exact[COARSE];
      double* const coarse = velocity[s][0];
      if (step % LENGTH == 0) begin(u[s], (unsigned)(1 + s + SAMPLES * (step / LENGTH) + 100000 * rank));
      filter(u[s], coarse);
      fill_change(coarse, change[s][0]);
      step_fine(u[s]);
      filter(u[s], exact);
      for (int i = 0; i < COARSE; ++i) {
        targets[s][0][i] = 10 * (exact[i] - coarse[i] - change[s][0][i]);
        mask[s][0][i] = fabs(coarse[(i + 1) % COARSE] - coarse[i]) < 1.5;
      }
    }
    require(lockstep_train(run, arrays, 4, &loss), run);
    if (rank == 0 && (step + 1) % 100 == 0) printf("step %d: loss %.2e\n", step + 1, loss);
  }

  double without = 0, with = 0;
  for (unsigned seed = 900001; seed < 900005; ++seed) {
    double fine[FINE], plain[COARSE], closed[COARSE], exact[COARSE];
    double step_change[COARSE], missing[COARSE];
    const int64_t one[] = {1, 1, COARSE};
    const lockstep_array given[] = {lockstep_array_c("velocity", LOCKSTEP_FLOAT64, 3, one, closed),
                                    lockstep_array_c("change", LOCKSTEP_FLOAT64, 3, one, step_change)};
    lockstep_array wanted = lockstep_array_c("output", LOCKSTEP_FLOAT64, 3, one, missing);
    begin(fine, seed);
    filter(fine, plain);
    filter(fine, closed);
    for (int step = 0; step < LENGTH; ++step) {
      step_fine(fine);
      step_coarse(plain);
      fill_change(closed, step_change);
      require(lockstep_predict(run, given, 2, &wanted, 1), run);
      for (int i = 0; i < COARSE; ++i) closed[i] += step_change[i] + missing[i] / 10;
    }
    filter(fine, exact);
    without += distance(plain, exact) / 4;
    with += distance(closed, exact) / 4;
  }
  if (rank == 0) printf("relative error: %.4f without the network, %.4f with it\n", without, with);
  require(lockstep_close(&run), NULL);
  MPI_Finalize();
  return with < 0.5 * without ? 0 : 1;
}
