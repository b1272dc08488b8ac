/* SPDX-License-Identifier: BSD-3-Clause */
/* A C program that calls CUDA and Lockstep; the first argument names the case. Ends with 0, or with a line that says
 * what was wrong. */
#include <lockstep/lockstep.h>

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const kSettings[] = {"run.device=cuda",    "run.tf32=none",       "model.name=mlp", "model.hidden=8",
                                        "data.input_shape=4", "data.target_shape=2", "run.threads=1"};
enum { SETTINGS = 7, SAMPLES = 6, STEPS = 5, IN = SAMPLES * 4, OUT = SAMPLES * 2 };

static void expect(int is_true, const char* what) {
  if (is_true) return;
  printf("wrong: %s (%s; %s)\n", what, lockstep_error(NULL), cudaGetErrorString(cudaGetLastError()));
  fflush(stdout);
  _Exit(1);
}

static void expect_sentence(int code, int wanted, const char* sentence) {
  expect(code == wanted, sentence);
  expect(strstr(lockstep_error(NULL), sentence) != NULL, sentence);
}

static lockstep_run* opened(const char* device) {
  const char* settings[SETTINGS];
  lockstep_run* run = NULL;
  memcpy(settings, kSettings, sizeof settings);
  settings[0] = device;
  expect(lockstep_open(settings, SETTINGS, LOCKSTEP_ALONE, &run) == LOCKSTEP_DONE, "open");
  return run;
}

static void* gpu_memory(size_t bytes) {
  void* memory = NULL;
  expect(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc");
  return memory;
}

static float* page_locked(size_t bytes) {
  void* memory = NULL;
  expect(cudaHostAlloc(&memory, bytes, 0) == cudaSuccess, "cudaHostAlloc");
  return memory;
}

static lockstep_array gpu_array(const char* name, int64_t columns, void* data) {
  const int64_t sizes[] = {SAMPLES, columns};
  lockstep_array array = lockstep_array_c(name, LOCKSTEP_FLOAT32, 2, sizes, data);
  array.device = LOCKSTEP_GPU;
  return array;
}

static lockstep_array host_array(const char* name, int64_t columns, void* data) {
  lockstep_array array = gpu_array(name, columns, data);
  array.device = LOCKSTEP_HOST;
  return array;
}

static void fill(float* inputs, float* targets, int step) {
  for (int i = 0; i < IN; ++i) inputs[i] = sinf((float)(step * IN + i));
  for (int i = 0; i < OUT; ++i) targets[i] = inputs[2 * i] - inputs[2 * i + 1];
}

/* Copies queued on the stream write the samples, and read the predictions. The host waits only at the end. */
static void case_order(cudaStream_t stream) {
  lockstep_run* of_gpu = opened("run.device=cuda");
  lockstep_run* of_host = opened("run.device=cuda");
  float* const inputs = gpu_memory(IN * sizeof(float));
  float* const targets = gpu_memory(OUT * sizeof(float));
  float* const outputs = gpu_memory(OUT * sizeof(float));
  float* const here[] = {page_locked(STEPS * IN * sizeof(float)), page_locked(STEPS * OUT * sizeof(float)),
                         page_locked(STEPS * OUT * sizeof(float))};
  expect(lockstep_set_stream(of_gpu, stream) == LOCKSTEP_DONE, "the stream");
  for (int step = 0; step < STEPS; ++step) {
    float* const in = here[0] + step * IN;
    float* const target = here[1] + step * OUT;
    lockstep_array arrays[] = {gpu_array("input", 4, inputs), gpu_array("target", 2, targets)};
    lockstep_array output = gpu_array("output", 2, outputs);
    double loss = 0;
    fill(in, target, step);
    expect(cudaMemcpyAsync(inputs, in, IN * sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess, "a copy");
    expect(cudaMemcpyAsync(targets, target, OUT * sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess,
           "a copy");
    expect(lockstep_train(of_gpu, arrays, 2, &loss) == LOCKSTEP_DONE, "a step");
    expect(cudaMemsetAsync(targets, 0, OUT * sizeof(float), stream) == cudaSuccess, "memory that is used again");
    expect(lockstep_predict(of_gpu, arrays, 1, &output, 1) == LOCKSTEP_DONE, "a prediction");
    expect(cudaMemcpyAsync(here[2] + step * OUT, outputs, OUT * sizeof(float), cudaMemcpyDeviceToHost, stream) ==
               cudaSuccess,
           "a copy");
  }
  expect(cudaStreamSynchronize(stream) == cudaSuccess, "the end of the stream");
  for (int step = 0; step < STEPS; ++step) {
    float predicted[OUT];
    lockstep_array arrays[] = {host_array("input", 4, here[0] + step * IN),
                               host_array("target", 2, here[1] + step * OUT)};
    lockstep_array output = host_array("output", 2, predicted);
    expect(lockstep_train(of_host, arrays, 2, NULL) == LOCKSTEP_DONE, "a step of the host");
    expect(lockstep_predict(of_host, arrays, 1, &output, 1) == LOCKSTEP_DONE, "a prediction of the host");
    expect(memcmp(predicted, here[2] + step * OUT, sizeof predicted) == 0, "the same bits");
  }
  expect(lockstep_close(&of_gpu) == LOCKSTEP_DONE && lockstep_close(&of_host) == LOCKSTEP_DONE, "close");
}

/* Columns of real64 as Fortran has them, parameters, and buffers. */
static void case_layouts(void) {
  lockstep_run* run = opened("run.device=cuda");
  float inputs[IN], targets[OUT], expected[OUT], predicted[OUT];
  double columns[OUT], weights[8 * 4];
  const int64_t sizes[] = {SAMPLES, 2}, shape[] = {8, 4};
  double* const there = gpu_memory(sizeof columns);
  float* const samples[] = {gpu_memory(sizeof inputs), gpu_memory(sizeof targets)};
  double* const parameter = gpu_memory(sizeof weights);
  lockstep_array arrays[] = {host_array("input", 4, inputs), host_array("target", 2, targets)};
  lockstep_array of_gpu[] = {gpu_array("input", 4, samples[0]), gpu_array("target", 2, samples[1])};
  lockstep_array output = host_array("output", 2, expected);
  lockstep_array transposed = lockstep_array_c("output", LOCKSTEP_FLOAT64, 2, sizes, there);
  lockstep_array values = lockstep_array_c(lockstep_parameter_name(run, 0), LOCKSTEP_FLOAT64, 2, shape, parameter);
  transposed.strides[0] = sizeof(double);
  transposed.strides[1] = SAMPLES * sizeof(double);
  transposed.device = values.device = LOCKSTEP_GPU;
  fill(inputs, targets, 0);
  cudaMemcpy(samples[0], inputs, sizeof inputs, cudaMemcpyHostToDevice);
  cudaMemcpy(samples[1], targets, sizeof targets, cudaMemcpyHostToDevice);
  expect(lockstep_push(run, of_gpu, 2) == LOCKSTEP_DONE && lockstep_push(run, arrays, 2) == LOCKSTEP_DONE, "push");
  expect(lockstep_buffer_size(run) == 2 * SAMPLES, "the buffer");
  expect(lockstep_predict(run, arrays, 1, &output, 1) == LOCKSTEP_DONE, "into host memory");
  expect(lockstep_predict(run, of_gpu, 1, &transposed, 1) == LOCKSTEP_DONE, "into columns");
  cudaMemcpy(columns, there, sizeof columns, cudaMemcpyDeviceToHost); /* on the default stream */
  for (int i = 0; i < OUT; ++i) expect(columns[i % 2 * SAMPLES + i / 2] == (double)expected[i], "the same values");
  expect(lockstep_get_parameter(run, &values) == LOCKSTEP_DONE, "a parameter");
  cudaMemset(parameter, 0, sizeof weights / 2);
  expect(lockstep_set_parameter(run, &values) == LOCKSTEP_DONE, "its new values");
  values.data = weights;
  values.device = LOCKSTEP_HOST;
  expect(lockstep_get_parameter(run, &values) == LOCKSTEP_DONE, "the parameter in host memory");
  for (int i = 0; i < 32; ++i) expect((weights[i] == 0) == (i < 16), "its values");
  output.data = predicted;
  expect(lockstep_predict(run, arrays, 1, &output, 1) == LOCKSTEP_DONE, "with them");
  expect(memcmp(predicted, expected, sizeof predicted) != 0, "another prediction");
  expect(lockstep_close(&run) == LOCKSTEP_DONE, "close");
}

static void case_refusals(void) {
  lockstep_run* run = opened("run.device=cuda");
  lockstep_run* on_cpu = opened("run.device=cpu");
  float here[IN] = {0};
  float* const there = gpu_memory(sizeof here);
  lockstep_array array = gpu_array("input", 4, here), output = gpu_array("output", 2, there);
  cudaStream_t stream = NULL;
  expect_sentence(lockstep_predict(run, &array, 1, &output, 1), LOCKSTEP_DATA,
                  "'input' is in host memory, but its device is LOCKSTEP_GPU");
  array = host_array("input", 4, there);
  expect_sentence(lockstep_predict(run, &array, 1, &output, 1), LOCKSTEP_DATA,
                  "'input' is in the memory of GPU 0, but its device is LOCKSTEP_HOST");
  array = gpu_array("input", 4, there + IN - 1);
  array.strides[1] = -4;
  expect_sentence(lockstep_push(run, &array, 1), LOCKSTEP_DATA,
                  "'input' has strides, or an address, that are negative");
  array = gpu_array("input", 4, there);
  array.device = 9;
  expect_sentence(lockstep_train(run, &array, 1, NULL), LOCKSTEP_DATA, "'input' has the device 9, which is none");
  array = gpu_array("input", 4, there);
  expect_sentence(lockstep_train(on_cpu, &array, 1, NULL), LOCKSTEP_DATA,
                  "'input' is in the memory of a GPU (LOCKSTEP_GPU), but the run computes on the CPU");
  array.name = "hidden0.weight";
  expect_sentence(lockstep_get_parameter(on_cpu, &array), LOCKSTEP_DATA, "'hidden0.weight' is in the memory of a GPU");
  expect_sentence(lockstep_set_parameter(on_cpu, &array), LOCKSTEP_DATA, "'hidden0.weight' is in the memory of a GPU");
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
  expect_sentence(lockstep_set_stream(on_cpu, stream), LOCKSTEP_CONFIGURATION, "a stream needs a run on a GPU");
  expect_sentence(lockstep_set_stream(NULL, stream), LOCKSTEP_CONFIGURATION, "the run is NULL");
  expect(lockstep_set_stream(on_cpu, NULL) == LOCKSTEP_DONE, "the default stream");
  array = gpu_array("input", 4, there);
  expect(cudaMemset(there, 0, sizeof here) == cudaSuccess, "zeros");
  output = host_array("output", 2, here);
  expect(lockstep_predict(run, &array, 1, &output, 1) == LOCKSTEP_DONE, "the run is as it was");
  expect(lockstep_close(&run) == LOCKSTEP_DONE && lockstep_close(&on_cpu) == LOCKSTEP_DONE, "close");
}

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "stream") == 0) {
    cudaStream_t stream = NULL;
    expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    case_order(stream);
  } else if (strcmp(name, "default_stream") == 0) {
    case_order(NULL);
  } else if (strcmp(name, "layouts") == 0) {
    case_layouts();
  } else if (strcmp(name, "refusals") == 0) {
    case_refusals();
  } else {
    expect(0, "the name of a case");
  }
  printf("done\n");
  return 0;
}
