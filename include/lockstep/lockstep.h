/* SPDX-License-Identifier: BSD-3-Clause */
/* Training and prediction inside a program that owns the process, the samples and the loop over steps.
 *
 * A run is opened on a communicator, trains on arrays of the program, predicts into arrays of the program, and is
 * closed:
 *
 *     const char* settings[] = {"model.name=mlp", "data.input_shape=16", "data.target_shape=1"};
 *     lockstep_run* run;
 *     lockstep_open(settings, 3, MPI_Comm_c2f(MPI_COMM_WORLD), &run);
 *     lockstep_array arrays[] = {lockstep_array_c("input", LOCKSTEP_FLOAT64, 2, sizes, inputs),
 *                                lockstep_array_c("target", LOCKSTEP_FLOAT64, 2, target_sizes, targets)};
 *     double loss;
 *     if (lockstep_train(run, arrays, 2, &loss) != LOCKSTEP_DONE) puts(lockstep_error(run));
 *     lockstep_close(&run);
 *
 * Every function that returns a code returns LOCKSTEP_DONE or the reason why it did nothing; lockstep_error gives the
 * sentence. No function ends the process, prints, or throws. A function that is *collective* is called by all ranks of
 * the run, in the same order as other collective functions of this run. If it fails on one rank it returns the same
 * code and sentence on all ranks. Wrong arguments leave the run as it was; after any other failure of a collective
 * function the run has ended: further calls return the same code, and only lockstep_close is of use.
 *
 * Runs on different communicators are independent. A run is used by one thread at a time. Every level of thread support
 * of MPI will do: MPI is called by the calling thread only. Lockstep neither initializes nor finalizes MPI, and leaves
 * signal handlers, error handlers and numbers of threads of the program as they are.
 */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A run: training with one model, or prediction with it. */
typedef struct lockstep_run lockstep_run;

/* The communicator of a run that is this process alone. MPI need not be initialized. */
#define LOCKSTEP_ALONE (-2147483647 - 1)

/* The codes, which are the exit codes of `trainer`. */
enum {
  LOCKSTEP_DONE = 0,
  LOCKSTEP_CONFIGURATION = 2, /* settings, names, or calls in the wrong order */
  LOCKSTEP_DATA = 3,          /* shapes and types of arrays, numbers of samples */
  LOCKSTEP_CHECKPOINT = 4,    /* a checkpoint cannot be written, read or used */
  LOCKSTEP_COMMUNICATION = 5, /* a rank has failed, is late, or is gone */
  LOCKSTEP_NUMERIC = 6,       /* the loss or the gradients are not finite */
  LOCKSTEP_MEMORY = 7,        /* no memory is left */
  LOCKSTEP_INTERNAL = 70      /* anything else */
};

/* The types of elements. */
enum {
  LOCKSTEP_FLOAT64 = 1,
  LOCKSTEP_FLOAT32 = 2,
  LOCKSTEP_FLOAT16 = 3,
  LOCKSTEP_BFLOAT16 = 4,
  LOCKSTEP_INT64 = 5,
  LOCKSTEP_INT32 = 6,
  LOCKSTEP_UINT8 = 7
};

#define LOCKSTEP_MAX_RANK 15

/* The memory of an array. */
enum {
  LOCKSTEP_HOST = 0, /* memory of the host */
  LOCKSTEP_GPU = 1   /* memory of the GPU that the run uses */
};

/* An array of the program, with one sample per index of its first dimension. It is read, or written, during the call
 * only. Strides are in bytes and arbitrary: an array with negative strides, or with strides that are no multiple of the
 * size of an element, is copied once. Others are read and written where they are; elements of another type than
 * float32 are converted while they are read.
 *
 * A run on a GPU (run.device=cuda) takes arrays in host memory, in the memory of its GPU, or both. Those on the GPU
 * belong to the stream of lockstep_set_stream: a call uses them behind all work that this stream has when the call
 * begins, and work that it gets later is behind the call. The host waits for neither, so that an array on the GPU is
 * complete only for this stream when the call returns. Strides that have to be copied are an error there. */
typedef struct lockstep_array {
  const char* name;
  int type;                           /* LOCKSTEP_FLOAT64, ... */
  int rank;                           /* number of dimensions, 1 to LOCKSTEP_MAX_RANK */
  int64_t sizes[LOCKSTEP_MAX_RANK];   /* elements along each dimension; sizes[0] = samples, may be 0 */
  int64_t strides[LOCKSTEP_MAX_RANK]; /* bytes between neighbors along each dimension */
  void* data;                         /* the element with index 0 in every dimension */
  int device;                         /* LOCKSTEP_HOST or LOCKSTEP_GPU */
} lockstep_array;

/* An array in host memory whose last dimension is contiguous, as C has it. For one on the GPU, set `device`. */
lockstep_array lockstep_array_c(const char* name, int type, int rank, const int64_t* sizes, void* data);
/* An array whose first dimension is contiguous, as Fortran has it. Its last dimension counts the samples: `sizes` are
 * those of Fortran, u(nx, ny, channels, samples), and a sample has the shape [channels, ny, nx]. Nothing is copied. */
lockstep_array lockstep_array_f(const char* name, int type, int rank, const int64_t* sizes, void* data);

/* Opens a run.
 * settings      `count` texts "key=value" with the keys of `trainer` (trainer --help); "config=FILE" reads a file of
 *               them, "from=RUN" begins with the configuration and the weights of a run, "purpose=predict" opens a run
 *               that only predicts. Later ones win. Without from=RUN, data.input_shape and data.target_shape (or
 *               data.kind and data.classes) are required. Without run.dir nothing is written.
 * communicator  the value of MPI_Comm_c2f for any ranks of the program, or LOCKSTEP_ALONE
 * run           receives the run; NULL after a failure, whose sentence lockstep_error(NULL) gives
 * Collective. */
int lockstep_open(const char* const* settings, int count, int communicator, lockstep_run** run);

/* Ends a run and frees it. With run.dir, a last checkpoint and the report are written. `*run` becomes NULL, whatever is
 * returned; then lockstep_error(NULL) gives the sentence. NULL and a run that has failed are just freed. Collective. */
int lockstep_close(lockstep_run** run);

/* One training step on the samples of all ranks, each with the same weight.
 * arrays  the inputs and targets of this rank: "input" and "target", unless data.input_keys and data.target_keys say
 *         otherwise, and further ones that the model or the loss reads, such as "mask". Ranks can have different
 *         numbers of samples; a rank without samples passes arrays with sizes[0] = 0, or none
 * loss    receives the mean over the samples of all ranks, before the update; may be NULL
 * Returns when all parameters that this rank can read are complete. Collective. */
int lockstep_train(lockstep_run* run, const lockstep_array* arrays, int count, double* loss);

/* Keeps samples in the buffer of this rank, whose size buffer.capacity limits (see buffer.keep). They are copied. With
 * train.lanes they are dealt to the lanes of this rank in turn. Not collective. */
int lockstep_push(lockstep_run* run, const lockstep_array* arrays, int count);
/* The lanes of this rank: `first` to first + count - 1; none without train.lanes. Not collective. */
int lockstep_lanes(const lockstep_run* run, int64_t* first, int64_t* count);
/* lockstep_push for one lane of this rank. A program that gives each lane the same samples, whatever rank has it,
 * computes the same bits on any number of ranks. */
int lockstep_push_lane(lockstep_run* run, int64_t lane, const lockstep_array* arrays, int count);
/* The samples in the buffer of this rank; -1 if `run` is NULL. Not collective. */
int64_t lockstep_buffer_size(const lockstep_run* run);
/* `steps` training steps on batches of train.global_batch_size samples that are drawn from the buffers, each of which
 * provides its part if it is not empty. The draws are a pure function of run.seed, the step and the pushed samples.
 * loss  receives that of the last step; may be NULL
 * Collective. */
int lockstep_train_buffer(lockstep_run* run, int64_t steps, double* loss);

/* Predicts with the weights of the latest step or, if the run averages weights (ema.kind), with the average at the
 * latest lockstep_update.
 * inputs   the inputs of the model, as for lockstep_train; targets are not needed
 * outputs  receive what the model computes, by name: "output" for a model with one output; also "values" of a
 *          regression, "classes", "labels" and "masks". Any type and strides; values are converted
 * The last bits can depend on the number of samples in the call. Not collective. */
int lockstep_predict(lockstep_run* run, const lockstep_array* inputs, int input_count, lockstep_array* outputs,
                     int output_count);

/* Gives lockstep_predict the average of the weights of this step, if the run has one (ema.kind, unless
 * eval.weights=trained). Collective.
 * On a producer: takes the weights with which the rank that receives its samples would predict. Waits until that rank
 * is in a call of lockstep_train, lockstep_train_buffer or lockstep_update. Not collective. */
int lockstep_update(lockstep_run* run);
/* The step whose weights lockstep_predict uses; -1 = it has none yet, or `run` is NULL. Not collective. */
int64_t lockstep_weights_step(const lockstep_run* run);

/* Producers. On some ranks of a communicator, a run can be opened with the setting "embed.role=producer"; all other
 * settings are the same on all ranks. Such a rank does not train: lockstep_push sends its samples to the buffer of a
 * rank that trains (buffer.route, or the lane; any lane will do), waits for nothing but room in its window
 * (buffer.window_mb, buffer.full), and lockstep_predict uses the weights of the latest lockstep_update. Only
 * lockstep_open is collective over all ranks; other collective functions are those of the ranks that train.
 * lockstep_close of a producer waits until its samples have arrived. On ranks that train, lockstep_train_buffer
 * receives samples before each step, and waits until there are buffer.min.
 * After a producer's process has ended without lockstep_close, and after the last producer has closed the run, a call
 * of lockstep_train_buffer returns LOCKSTEP_COMMUNICATION, once; the run continues. When the ranks that train have
 * closed the run, or it has failed, lockstep_push and lockstep_update return LOCKSTEP_COMMUNICATION. */

/* Producers that have not ended, at the latest call of lockstep_train_buffer on a rank that trains; else 0. Not
 * collective. */
int64_t lockstep_producers(const lockstep_run* run);
/* Samples that the window of this producer had no room for (buffer.full=drop). On a rank that trains: the sum for the
 * producers that have closed the run, at the latest call of lockstep_train_buffer. Not collective. */
int64_t lockstep_dropped(const lockstep_run* run);

/* Saves a checkpoint in run.dir and waits until it is there. Collective. */
int lockstep_save(lockstep_run* run);
/* Continues from a checkpoint.
 * from  NULL = the newest one of run.dir; else a step ("1000"), or the path of a checkpoint or run
 * Collective. */
int lockstep_resume(lockstep_run* run, const char* from);
/* A value of the program for metrics.jsonl and the report. That of the first rank counts. Not collective. */
int lockstep_metric(lockstep_run* run, const char* name, double value);
/* A line in the log of this rank, which lies in run.dir. Not collective. */
int lockstep_log(lockstep_run* run, const char* text);

/* Updates done; -1 if `run` is NULL. Not collective. */
int64_t lockstep_step(const lockstep_run* run);
/* Elements of all parameters; -1 if `run` is NULL. Not collective. */
int64_t lockstep_parameter_count(const lockstep_run* run);
/* The name of parameter or buffer number `index`, in the order of the model; NULL beyond the last. It is valid until
 * the run is closed. Not collective. */
const char* lockstep_parameter_name(lockstep_run* run, int64_t index);
/* Copies a parameter or buffer of the name values->name into `values`, which has its shape. Not collective. */
int lockstep_get_parameter(lockstep_run* run, lockstep_array* values);
/* Replaces a parameter or buffer on all ranks by the values of the first rank. Collective. */
int lockstep_set_parameter(lockstep_run* run, const lockstep_array* values);
/* The stream to which arrays on the GPU belong, for later calls of this run. It must not be captured (recorded as a
 * graph) during calls, and must exist until another one is set or the run is closed.
 * stream  a cudaStream_t of the GPU of the run; NULL = the default stream (cudaStreamLegacy), as after lockstep_open
 * Not collective. */
int lockstep_set_stream(lockstep_run* run, void* stream);
/* The norm of the gradients of the last step before clipping; NaN if it was not computed, as without
 * train.clip_norm. Not collective. */
int lockstep_gradient_norm(const lockstep_run* run, double* norm);

/* The sentence of the last failed call of this run; with NULL, of the last failed call of this thread. "" = there was
 * none. It is valid until the next call. */
const char* lockstep_error(const lockstep_run* run);
/* The version of Lockstep, such as "0.1.0". */
const char* lockstep_version(void);

#ifdef __cplusplus
}
#endif

#endif
