/* SPDX-License-Identifier: BSD-3-Clause */
/* Training in transit: half of the ranks simulate pendulums, and send what they see to the other half, which trains
 * meanwhile.
 *
 *     mpirun -np 4 transit [STEPS]
 *
 * A sample has the angle and the speed of a damped pendulum as input, and their changes in 0.2 s as target. The ranks
 * that simulate take the weights of the others from time to time, and end when these have done STEPS steps. The program
 * prints the error of the predicted changes, and ends with 1 if it is not small. */
#include <lockstep/lockstep.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PENDULUMS = 64, LENGTH = 20, SUBSTEPS = 20 };

static void require(int code, const lockstep_run* run) {
  if (code == LOCKSTEP_DONE) return;
  fprintf(stderr, "transit: %s\n", lockstep_error(run));
  MPI_Abort(MPI_COMM_WORLD, code);
}

/* A number between -1 and 1. */
static double drawn(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) / 8388608.0 - 1;
}

static void begin(double states[][2], unsigned* random) {
  for (int p = 0; p < PENDULUMS; ++p) {
    states[p][0] = 2 * drawn(random);
    states[p][1] = 3 * drawn(random);
  }
}

/* Fills `changes` with those of 0.2 s, and advances the states. */
static void simulate(double states[][2], double changes[][2]) {
  for (int p = 0; p < PENDULUMS; ++p) {
    double angle = states[p][0], speed = states[p][1];
    for (int s = 0; s < SUBSTEPS; ++s) {
      speed -= 0.2 / SUBSTEPS * (4 * sin(angle) + 0.3 * speed);
      angle += 0.2 / SUBSTEPS * speed;
    }
    changes[p][0] = angle - states[p][0];
    changes[p][1] = speed - states[p][1];
  }
}

static void train(lockstep_run* run, int rank) {
  double loss = 0;
  while (lockstep_train_buffer(run, 1, &loss) == LOCKSTEP_DONE) {
    if (rank == 0 && lockstep_step(run) % 500 == 0) printf("step %d: loss %.2e\n", (int)lockstep_step(run), loss);
  }
  if (lockstep_producers(run) > 0) require(1, run); /* else the producers are done, which the code says, too */
}

static double produce(lockstep_run* run, int rank, int steps) {
  static double states[PENDULUMS][2], changes[PENDULUMS][2], predicted[PENDULUMS][2];
  const int64_t sizes[] = {PENDULUMS, 2};
  lockstep_array arrays[] = {lockstep_array_c("input", LOCKSTEP_FLOAT64, 2, sizes, states),
                             lockstep_array_c("target", LOCKSTEP_FLOAT64, 2, sizes, changes)};
  lockstep_array output = lockstep_array_c("output", LOCKSTEP_FLOAT64, 2, sizes, predicted);
  unsigned random = (unsigned)(1 + rank);
  double error = 0, norm = 0;
  do {
    begin(states, &random);
    for (int i = 0; i < LENGTH; ++i) {
      simulate(states, changes);
      require(lockstep_push(run, arrays, 2), run);
      for (int p = 0; p < PENDULUMS; ++p) {
        states[p][0] += changes[p][0];
        states[p][1] += changes[p][1];
      }
    }
    require(lockstep_update(run), run);
  } while (lockstep_weights_step(run) < steps);
  begin(states, &random);
  simulate(states, changes);
  require(lockstep_predict(run, arrays, 1, &output, 1), run);
  for (int p = 0; p < PENDULUMS; ++p) {
    for (int i = 0; i < 2; ++i) {
      error += (predicted[p][i] - changes[p][i]) * (predicted[p][i] - changes[p][i]);
      norm += changes[p][i] * changes[p][i];
    }
  }
  return sqrt(error / norm);
}

int main(int argc, char** argv) {
  const char* const settings[] = {"model.name=mlp",        "model.hidden=32",       "model.activation=tanh",
                                  "data.input_shape=2",    "data.target_shape=2",   "optim.name=adamw",
                                  "optim.lr=0.005",        "run.threads=1",         "train.global_batch_size=64",
                                  "buffer.capacity=20000", "buffer.keep=reservoir", "sched.name=cosine",
                                  "train.max_steps=3000",  "embed.role=producer"};
  const int count = (int)(sizeof settings / sizeof *settings);
  int rank, ranks, steps = 3000;
  double error = 0;
  lockstep_run* run;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 1) steps = atoi(argv[1]);
  const int is_producer = rank >= (ranks + 1) / 2;
  require(lockstep_open(settings, is_producer ? count : count - 1, MPI_Comm_c2f(MPI_COMM_WORLD), &run), NULL);
  if (is_producer) {
    error = produce(run, rank, steps);
  } else {
    train(run, rank);
  }
  require(lockstep_close(&run), NULL);
  MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("relative error of predicted changes: %.4f\n", error);
  MPI_Finalize();
  return error < 0.1 ? 0 : 1;
}
