// SPDX-License-Identifier: BSD-3-Clause
// The program of docs/tutorial.md: predicts the frequency of damped springs, and how certain each prediction is.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <hdf5.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

/// An identifier of HDF5, which is closed at the end of its scope.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t id() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// Reads an array of an HDF5 file as float32.
at::Tensor read_array(hid_t file, const std::string& path, const std::string& name) {
  const Handle array(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (array.id() < 0) throw DataError(path, "there is no array '" + name + "'");
  const Handle space(H5Dget_space(array.id()), H5Sclose);
  std::array<hsize_t, H5S_MAX_RANK> sizes = {};
  const int dimensions = H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr);
  const std::vector<std::int64_t> shape(sizes.begin(), sizes.begin() + dimensions);
  at::Tensor values = torch::empty(shape, at::kFloat);
  if (H5Dread(array.id(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data_ptr()) < 0) {
    throw DataError(path, "the array '" + name + "' cannot be read");
  }
  return values;
}

/// Signals and their frequencies in memory.
class Springs : public data::SampleDataset {
 public:
  /// @param signals      [N, T] float32
  /// @param frequencies  [N] float32
  Springs(at::Tensor signals, at::Tensor frequencies)
      : signals_(std::move(signals)), frequencies_(std::move(frequencies)) {}

  std::int64_t size() const override { return signals_.size(0); }
  Task task() const override { return {.sample_shape = {signals_.size(1)}, .kind = TaskKind::custom}; }
  batch::Roles roles() const override { return {.inputs = {"signal"}, .targets = {"frequency"}}; }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    return {{"signal", signals_[draw.index]}, {"frequency", frequencies_[draw.index]}};
  }
  std::uint64_t digest() const override {
    std::uint64_t digest = 14695981039346656037U;  // FNV-1a of all bytes
    for (const at::Tensor& values : {signals_, frequencies_}) {
      const std::span bytes(static_cast<const unsigned char*>(values.data_ptr()), values.nbytes());
      for (const unsigned char byte : bytes) digest = (digest ^ byte) * 1099511628211U;
    }
    return digest;
  }

 private:
  at::Tensor signals_;
  at::Tensor frequencies_;
};

data::Splits open_springs(const Section& section) {
  const std::string& path = section.text("file");
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (file.id() < 0) throw DataError(path, "the file cannot be opened; set data.file");
  const at::Tensor signals = read_array(file.id(), path, "signal");
  const at::Tensor frequencies = read_array(file.id(), path, "frequency");
  if (signals.dim() != 2 || frequencies.dim() != 1 || signals.size(0) != frequencies.size(0)) {
    throw DataError(path, "'signal' must be [N, T], and 'frequency' [N]");
  }
  const std::int64_t size = signals.size(0), train = size * 7 / 8;
  const auto samples = [&](std::int64_t first, std::int64_t end) {
    return std::make_shared<Springs>(signals.slice(0, first, end), frequencies.slice(0, first, end));
  };
  return {.train = samples(0, train), .val = samples(train, size)};
}

/// Two convolutions of LibTorch: [N, T] -> [N, features].
class Encoder : public models::Block {
 public:
  explicit Encoder(std::int64_t channels) {
    using Options = torch::nn::Conv1dOptions;
    first_ = register_module("first", torch::nn::Conv1d(Options(1, channels, 9).stride(2)));
    second_ = register_module("second", torch::nn::Conv1d(Options(channels, channels, 5).stride(2)));
  }
  at::Tensor forward(const at::Tensor& signal) override {
    const at::Tensor hidden = at::relu(first_->forward(signal.unsqueeze(1)));
    return at::relu(second_->forward(hidden)).flatten(1);
  }
  /// The number of features for signals of `times` values.
  static std::int64_t features(std::int64_t channels, std::int64_t times) {
    const std::int64_t after_first = (times - 9) / 2 + 1;
    return channels * ((after_first - 5) / 2 + 1);
  }

 private:
  torch::nn::Conv1d first_{nullptr};
  torch::nn::Conv1d second_{nullptr};
};

/// An encoder with two outputs: the frequency, and the logarithm of the variance of its error.
class SpringNet : public models::Model {
 public:
  SpringNet(std::int64_t channels, std::int64_t times) {
    const std::int64_t features = Encoder::features(channels, times);
    encoder_ = register_module("encoder", std::make_shared<Encoder>(channels));
    frequency_ = register_module("frequency", std::make_shared<models::Linear>(features, 1));
    log_variance_ = register_module("log_variance", std::make_shared<models::Linear>(features, 1));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    const at::Tensor features = models::run(*encoder_, batch.input());
    return {{"frequency", models::run(*frequency_, features).squeeze(1)},
            {"log_variance", models::run(*log_variance_, features).squeeze(1)}};
  }
  models::Predictions predictions_of(const batch::Outputs& outputs, const batch::Batch&) const override {
    return {{"frequency", outputs.tensor("frequency")},
            {"deviation", at::exp(0.5 * outputs.tensor("log_variance").to(at::kFloat))}};
  }

 private:
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<models::Linear> frequency_;
  std::shared_ptr<models::Linear> log_variance_;
};

std::shared_ptr<models::Model> make_spring_net(const Section& model, const Task& task) {
  return std::make_shared<SpringNet>(model.integer("spring_channels"), task.sample_shape.at(0));
}

/// The negative log-likelihood of a normal distribution, without its constant.
models::Loss make_gaussian(const Section& loss, const Task&) {
  const double min_log_variance = std::log(loss.real("min_variance"));
  return {.value = [min_log_variance](const batch::Outputs& outputs, const batch::Batch& batch, bool) {
    const at::Tensor error = outputs.tensor("frequency").to(at::kFloat) - batch.target();
    const at::Tensor log_variance = outputs.tensor("log_variance").to(at::kFloat).clamp_min(min_log_variance);
    return 0.5 * (log_variance + error.square() * at::exp(-log_variance)).mean();
  }};
}

/// The share of the samples with a relative error of at most `tolerance`.
metrics::Meter make_within(const Section& options, std::int64_t) {
  metrics::Meter meter;
  meter.results = {{"within", /*is_higher_better=*/true}};
  meter.reads.output = "frequency";
  meter.words = 2;  // samples, and those within the tolerance
  meter.add = [tolerance = options.real("tolerance")](const metrics::Samples& samples, std::span<std::int64_t> words) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double target = samples.targets[i];
      words[0] += 1;
      words[1] += std::abs(samples.outputs[i] - target) <= tolerance * std::abs(target) ? 1 : 0;
    }
  };
  meter.read = [](std::span<const std::int64_t> words) {
    return metrics::Reading{{static_cast<double>(words[1]) / static_cast<double>(words[0])}};
  };
  return meter;
}

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.sources.push_back({.name = "springs",
                              .help = "signals of damped springs in an HDF5 file",
                              .keys = {keys::text("data.file", "springs.h5", "springs: path of the HDF5 file")},
                              .open = open_springs});
  registry.models.push_back({.name = "spring_net",
                             .help = "two convolutions with the outputs frequency and log_variance",
                             .keys = {keys::integer("model.spring_channels", "16", "spring_net: channels", 1, 1024)},
                             .make = make_spring_net});
  registry.losses.push_back(
      {.name = "gaussian",
       .help = "negative log-likelihood of a normal distribution",
       .keys = {keys::real_above("loss.min_variance", 0, 1, "1e-6", "gaussian: minimum of the predicted variance")},
       .make = make_gaussian});
  registry.meters.push_back({.name = "within",
                             .help = "Share of the samples with a small relative error",
                             .needs = "output and target: one number",
                             .keys = {keys::real("tolerance", "0.1", "Maximum relative error", 0, 1)},
                             .make = make_within});
  trainer::run(argc, argv, registry);
}
