/* SPDX-License-Identifier: BSD-3-Clause */
/* A C program that calls Lockstep as a library; the first argument names the case. Ends with 0, or with a line that
 * says what was wrong. */
#define _POSIX_C_SOURCE 200809L
#include <lockstep/lockstep.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* const kSettings[] = {"model.name=mlp", "model.hidden=8", "data.input_shape=4", "data.target_shape=2",
                                        "run.threads=1"};
enum { SETTINGS = 5, SAMPLES = 6 };

static void expect(int is_true, const char* what) {
  if (is_true) return;
  printf("wrong: %s (%s)\n", what, lockstep_error(NULL));
  fflush(stdout);
  _exit(1);
}

static float inputs[SAMPLES][4], targets[SAMPLES][2];

static void fill(lockstep_array* arrays) {
  static const int64_t in[] = {SAMPLES, 4}, out[] = {SAMPLES, 2};
  for (int s = 0; s < SAMPLES; ++s) {
    for (int i = 0; i < 4; ++i) inputs[s][i] = sinf((float)(s * 4 + i));
    for (int i = 0; i < 2; ++i) targets[s][i] = inputs[s][i] - inputs[s][i + 2];
  }
  arrays[0] = lockstep_array_c("input", LOCKSTEP_FLOAT32, 2, in, inputs);
  arrays[1] = lockstep_array_c("target", LOCKSTEP_FLOAT32, 2, out, targets);
}

static lockstep_run* opened(int communicator) {
  lockstep_run* run = NULL;
  expect(lockstep_open(kSettings, SETTINGS, communicator, &run) == LOCKSTEP_DONE, "open");
  return run;
}

static void train(lockstep_run* run, int steps) {
  lockstep_array arrays[2];
  double first = 0, loss = 0;
  fill(arrays);
  expect(lockstep_train(run, arrays, 2, &first) == LOCKSTEP_DONE, "the first step");
  for (int i = 1; i < steps; ++i) expect(lockstep_train(run, arrays, 2, &loss) == LOCKSTEP_DONE, "a step");
  expect(steps < 10 || loss < first, "the loss falls");
  expect(lockstep_step(run) == steps, "the number of steps");
}

static int start_mpi(const char* level, int* argc, char*** argv) {
  const char* const names[] = {"single", "funneled", "serialized", "multiple"};
  const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
  int provided = 0;
  for (int i = 0; i < 4; ++i) {
    if (strcmp(level, names[i]) == 0) MPI_Init_thread(argc, argv, levels[i], &provided);
  }
  return MPI_Comm_c2f(MPI_COMM_WORLD);
}

static void case_quiet(void) {
  lockstep_run* run = opened(LOCKSTEP_ALONE);
  train(run, 20);
  expect(lockstep_close(&run) == LOCKSTEP_DONE && run == NULL, "close");
}

static volatile sig_atomic_t signals = 0;
static void on_signal(int number) {
  (void)number;
  ++signals;
}

/* Signal handlers, error handlers and forks of the program. */
static void case_handlers(int communicator) {
  struct sigaction action, now;
  MPI_Errhandler handler;
  lockstep_run* run;
  pid_t child;
  int status = 0;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  run = opened(communicator);
  train(run, 10);
  raise(SIGUSR1);
  raise(SIGTERM);
  child = fork();
  if (child == 0) _exit(7);
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a child of the program");
  expect(signals == 2, "the handlers of the program were called");
  sigaction(SIGTERM, NULL, &now);
  expect(now.sa_handler == on_signal, "the handler of SIGTERM");
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  expect(handler == MPI_ERRORS_RETURN, "the error handler of MPI");
  expect(lockstep_close(&run) == LOCKSTEP_DONE, "close");
}

static void case_misuse(void) {
  lockstep_array arrays[2];
  lockstep_run* run = NULL;
  const char* const wrong[] = {"model.name=mpl", "data.input_shape=4", "data.target_shape=2"};
  double value = 0;
  expect(lockstep_open(wrong, 3, LOCKSTEP_ALONE, &run) == LOCKSTEP_CONFIGURATION && run == NULL, "an unknown model");
  expect(strstr(lockstep_error(NULL), "mlp") != NULL, "the nearest model is named");
  expect(lockstep_open(NULL, 2, LOCKSTEP_ALONE, &run) == LOCKSTEP_CONFIGURATION, "no settings");
  expect(lockstep_open(kSettings, SETTINGS, LOCKSTEP_ALONE, NULL) == LOCKSTEP_CONFIGURATION, "no place for the run");
  expect(lockstep_train(NULL, arrays, 0, NULL) == LOCKSTEP_CONFIGURATION, "no run");
  expect(lockstep_step(NULL) == -1 && lockstep_parameter_count(NULL) == -1 && lockstep_buffer_size(NULL) == -1, "-1");
  expect(lockstep_close(&run) == LOCKSTEP_DONE && lockstep_close(NULL) == LOCKSTEP_DONE, "closing nothing");
  run = opened(LOCKSTEP_ALONE);
  expect(lockstep_error(run)[0] == '\0', "no sentence yet");
  fill(arrays);
  expect(lockstep_train(run, NULL, 2, NULL) == LOCKSTEP_DATA, "no arrays");
  expect(lockstep_train(run, arrays, -1, NULL) == LOCKSTEP_DATA, "a negative number of arrays");
  expect(lockstep_train(run, arrays, 1, NULL) == LOCKSTEP_DATA, "no target");
  expect(strcmp(lockstep_error(run), "the target 'target' is missing; there are 'input'") == 0, "its sentence");
  arrays[0].type = 99;
  expect(lockstep_train(run, arrays, 2, NULL) == LOCKSTEP_DATA, "an unknown type");
  fill(arrays);
  expect(lockstep_predict(run, arrays, 1, &arrays[0], 1) == LOCKSTEP_DATA, "an unknown output");
  expect(strcmp(lockstep_error(run), "the model has no output 'input'; it has 'output', 'values'") == 0, "its name");
  expect(lockstep_save(run) == LOCKSTEP_CONFIGURATION, "no folder");
  expect(lockstep_train_buffer(run, 1, NULL) == LOCKSTEP_DATA, "an empty buffer");
  expect(lockstep_push_lane(run, 3, arrays, 2) == LOCKSTEP_DATA, "a lane without lanes");
  expect(lockstep_parameter_name(run, -1) == NULL && lockstep_parameter_name(run, 4) == NULL, "names beyond the last");
  expect(strcmp(lockstep_parameter_name(run, 0), "hidden0.weight") == 0, "a name");
  expect(lockstep_gradient_norm(run, &value) == LOCKSTEP_DONE && isnan(value), "no norm");
  train(run, 1);
  expect(lockstep_close(&run) == LOCKSTEP_DONE, "close");
}

/* Resident memory in kB. */
static long memory(void) {
  long pages = 0, resident = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  if (file != NULL) fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void case_leaks(void) {
  long before = 0;
  for (int i = 0; i < 120; ++i) {
    lockstep_run* run = opened(LOCKSTEP_ALONE);
    train(run, 3);
    lockstep_close(&run);
    if (i == 19) before = memory();
  }
  /* A run that is not freed would keep more than 100 kB. */
  expect(memory() - before < 4000, "100 runs need no more memory than one");
}

static void case_uninitialized(void) {
  lockstep_run* run = NULL;
  expect(lockstep_open(kSettings, SETTINGS, 0, &run) == LOCKSTEP_CONFIGURATION, "no MPI");
  expect(strstr(lockstep_error(NULL), "MPI is not initialized") != NULL, "the sentence");
}

static void rest(long milliseconds) {
  const struct timespec span = {0, milliseconds * 1000000};
  nanosleep(&span, NULL);
}

/* Rank 0 trains with the samples of the others. */
static lockstep_run* opened_with_producers(int communicator, int rank) {
  const char* settings[SETTINGS + 2];
  lockstep_run* run = NULL;
  memcpy(settings, kSettings, sizeof kSettings);
  settings[SETTINGS] = "comm.timeout_s=60";
  settings[SETTINGS + 1] = "embed.role=producer";
  expect(lockstep_open(settings, SETTINGS + (rank > 0 ? 2 : 1), communicator, &run) == LOCKSTEP_DONE, "open");
  return run;
}

/* The last rank dies, and the others continue: recovery is switched on in mpirun. */
static void case_producer_dies(int communicator) {
  int rank, size;
  double loss = 0;
  int64_t before;
  lockstep_array arrays[2];
  lockstep_run* run;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  run = opened_with_producers(communicator, rank);
  fill(arrays);
  if (rank > 0) {
    for (int i = 0; i < 50; ++i) expect(lockstep_push(run, arrays, 2) == LOCKSTEP_DONE, "push");
    expect(lockstep_update(run) == LOCKSTEP_DONE && lockstep_weights_step(run) >= 0, "update");
    if (rank == size - 1) raise(SIGKILL);
    rest(500);
    expect(lockstep_push(run, arrays, 2) == LOCKSTEP_DONE, "push after a death");
    expect(lockstep_close(&run) == LOCKSTEP_DONE, "close");
    _exit(0);
  }
  while (lockstep_train_buffer(run, 1, &loss) == LOCKSTEP_DONE) {
  }
  printf("%s\n", lockstep_error(run));
  while (lockstep_train_buffer(run, 1, &loss) == LOCKSTEP_DONE) {
  }
  printf("%s\n", lockstep_error(run));
  before = lockstep_step(run);
  expect(lockstep_train_buffer(run, 5, &loss) == LOCKSTEP_DONE && lockstep_step(run) == before + 5, "further steps");
  expect(lockstep_close(&run) == LOCKSTEP_DONE, "close");
  fflush(stdout);
  _exit(0); /* MPI_Finalize would wait for the dead rank */
}

/* The rank that trains dies. */
static void case_trainer_dies(int communicator) {
  int rank;
  lockstep_array arrays[2];
  lockstep_run* run;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  run = opened_with_producers(communicator, rank);
  fill(arrays);
  if (rank == 0) {
    expect(lockstep_train_buffer(run, 3, NULL) == LOCKSTEP_DONE, "steps");
    raise(SIGKILL);
  }
  while (lockstep_push(run, arrays, 2) == LOCKSTEP_DONE) rest(1);
  if (rank == 1) printf("%s\n", lockstep_error(run));
  expect(lockstep_update(run) == LOCKSTEP_COMMUNICATION, "no weights");
  lockstep_close(&run);
  fflush(stdout);
  _exit(0);
}

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "";
  int communicator = LOCKSTEP_ALONE;
  if (argc > 2) communicator = start_mpi(argv[2], &argc, &argv);
  if (strcmp(name, "train") == 0) {
    lockstep_run* run = opened(communicator);
    train(run, 20);
    expect(lockstep_close(&run) == LOCKSTEP_DONE, "close");
    printf("trained\n");
  } else if (strcmp(name, "quiet") == 0) {
    case_quiet();
  } else if (strcmp(name, "handlers") == 0) {
    case_handlers(communicator);
  } else if (strcmp(name, "producer_dies") == 0) {
    case_producer_dies(communicator);
  } else if (strcmp(name, "trainer_dies") == 0) {
    case_trainer_dies(communicator);
  } else if (strcmp(name, "misuse") == 0) {
    case_misuse();
  } else if (strcmp(name, "leaks") == 0) {
    case_leaks();
  } else if (strcmp(name, "uninitialized") == 0) {
    case_uninitialized();
  } else if (strcmp(name, "other_mpi") == 0) {
    lockstep_run* run = NULL;
    MPI_Init(&argc, &argv);
    expect(lockstep_open(kSettings, SETTINGS, MPI_Comm_c2f(MPI_COMM_WORLD), &run) == LOCKSTEP_CONFIGURATION, "refused");
    printf("%s\n", lockstep_error(NULL));
    communicator = 0;
  } else {
    expect(0, "the name of a case");
  }
  if (communicator != LOCKSTEP_ALONE) MPI_Finalize();
  return 0;
}
