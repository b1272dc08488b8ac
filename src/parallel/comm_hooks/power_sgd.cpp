// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/comm_hooks/power_sgd.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "parallel/comm_hooks/message_pool.hpp"

namespace lockstep::parallel {

namespace {

constexpr std::int64_t kBatched = std::int64_t{1}
                                  << 32;  // plus a bucket's index: distinguishes its Q from that of a parameter

void require_usable(const PowerSgdOptions& options) {
  if (options.rank < 1) throw ConfigError("ddp.powersgd_rank must be at least 1");
  if (options.start_step < 0 || options.min_compression_rate < 0) {
    throw ConfigError("ddp.powersgd_start_step and ddp.powersgd_min_compression_rate must not be negative");
  }
  if (options.start_step < 2 && (options.has_error_feedback || options.has_warm_start)) {
    throw ConfigError(
        "ddp.powersgd_start_step must be at least 2 with ddp.powersgd_error_feedback or ddp.powersgd_warm_start: the "
        "buckets change after the first two steps");
  }
}

/// Writes over what a step before has kept, so that a captured step finds it at the same place.
void keep(at::Tensor& kept, const at::Tensor& value) {
  if (kept.defined() && kept.sizes() == value.sizes()) {
    kept.copy_(value);
  } else {
    kept = value;
  }
}

at::Tensor orthonormalized(const at::Tensor& columns) { return std::get<0>(at::linalg_qr(columns)); }

/// Some gradients of a bucket as one matrix.
struct GradientMatrix {
  std::int64_t key;                    // identifies its Q in warm_qs_
  std::vector<std::size_t> gradients;  // indices of the gradients in the bucket
  at::Tensor matrix;                   // M, [n, m]
  std::int64_t rank;
  at::Tensor q = {};  // [m, rank]
};

class PowerSgd : public HookMemory {
 public:
  PowerSgd(mpi::Collectives& collectives, const PowerSgdOptions& options) : pool_(collectives), options_(options) {
    require_usable(options_);
  }

  Completion start(const GradBucket& bucket) {
    const std::int64_t step = step_;
    if (bucket.is_last()) ++step_;
    if (step < options_.start_step) return all_reduce_hook(pool_.collectives())(bucket);

    std::vector<at::Tensor> uncompressed;
    std::vector<GradientMatrix> parts = divide(bucket, uncompressed);
    std::int64_t count = 0;
    for (const at::Tensor& gradient : uncompressed) count += gradient.numel();
    for (const GradientMatrix& part : parts) count += part.matrix.size(0) * part.rank;
    // The tensor that is not compressed travels in front of the Ps.
    const at::Tensor message = pool_.take(2 * bucket.index, count, bucket.buffer.options());
    std::int64_t begin = 0;
    const auto send = [&](const at::Tensor& values) {
      message.narrow(0, begin, values.numel()).view(values.sizes()).copy_(values);
      begin += values.numel();
    };
    for (const at::Tensor& gradient : uncompressed) send(gradient);
    for (GradientMatrix& part : parts) {
      const auto warm = warm_qs_.find(part.key);
      const bool fits =
          warm != warm_qs_.end() && warm->second.sizes() == at::IntArrayRef{part.matrix.size(1), part.rank};
      part.q = orthonormalized(fits ? warm->second : first_q(part, step));
      send(at::mm(part.matrix, part.q));
    }
    const mpi::Ticket ticket = start_all_reduce(message, pool_.collectives(), mpi::ReduceOp::average);
    return [this, bucket, parts = std::move(parts), uncompressed = std::move(uncompressed), message, ticket]() mutable {
      pool_.collectives().wait(ticket);
      return finish(bucket, parts, uncompressed, message);
    };
  }

  HookState state() const override {
    HookState state;
    state.integers["step"] = step_;
    for (const auto& [place, error] : errors_) state.tensors["error." + std::to_string(place)] = error.clone();
    for (const auto& [key, q] : warm_qs_) state.common["q." + std::to_string(key)] = q.clone();
    return state;
  }

  void load_state(const HookState& state) override {
    const auto fail = [](const std::string& what) {
      throw CheckpointError("the state of ddp.comm_hook=powersgd " + what);
    };
    if (!state.integers.contains("step")) fail("does not contain 'step'");
    std::map<std::size_t, at::Tensor> errors;
    std::map<std::int64_t, at::Tensor> warm_qs;
    for (const auto& [name, tensor] : state.tensors) {
      if (!name.starts_with("error.")) fail("has an unknown tensor '" + name + "'");
      errors[std::stoull(name.substr(6))] = tensor.clone();
    }
    for (const auto& [name, tensor] : state.common) {
      if (!name.starts_with("q.")) fail("has an unknown tensor '" + name + "'");
      warm_qs[std::stoll(name.substr(2))] = tensor.clone();
    }
    step_ = state.integers.at("step");
    errors_ = std::move(errors);
    warm_qs_ = std::move(warm_qs);
    ++loads_;
  }

  std::int64_t work() const override { return step_ < options_.start_step ? 0 : 1 + loads_; }
  std::int64_t* step_count() override { return &step_; }

 private:
  /// The matrices to be compressed; gradients that stay as they are go to `uncompressed`.
  std::vector<GradientMatrix> divide(const GradBucket& bucket, std::vector<at::Tensor>& uncompressed) const {
    if (options_.is_batched) return {whole(bucket)};
    std::vector<GradientMatrix> parts;
    for (std::size_t g = 0; g < bucket.gradients.size(); ++g) {
      const at::Tensor& gradient = bucket.gradients[g];
      const std::int64_t n = gradient.dim() == 0 ? 1 : gradient.size(0);
      const std::int64_t m = n == 0 ? 0 : gradient.numel() / n;
      const auto sent = static_cast<double>((n + m) * std::min({n, m, options_.rank}));
      if (sent * options_.min_compression_rate < static_cast<double>(n * m)) {
        parts.push_back(part_of(bucket, static_cast<std::int64_t>(bucket.places[g]), {g}, n, m));
      } else {
        uncompressed.push_back(gradient);
      }
    }
    return parts;
  }

  /// All gradients of a bucket in a square, filled up with zeros.
  GradientMatrix whole(const GradBucket& bucket) const {
    std::vector<std::size_t> all(bucket.gradients.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    double count = 0;
    for (const at::Tensor& gradient : bucket.gradients) count += static_cast<double>(gradient.numel());
    const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(count)));
    return part_of(bucket, kBatched + static_cast<std::int64_t>(bucket.index), std::move(all), side, side);
  }

  /// Adds what former steps lost.
  GradientMatrix part_of(const GradBucket& bucket, std::int64_t key, std::vector<std::size_t> gradients, std::int64_t n,
                         std::int64_t m) const {
    const bool is_narrow = bucket.buffer.scalar_type() == at::kHalf || bucket.buffer.scalar_type() == at::kBFloat16;
    std::vector<at::Tensor> pieces;
    for (const std::size_t g : gradients) {
      const at::Tensor piece =
          bucket.gradients[g].reshape({-1}).to(is_narrow ? at::kFloat : bucket.buffer.scalar_type());
      const auto error = errors_.find(bucket.places[g]);
      pieces.push_back(error == errors_.end() ? piece : piece + error->second);
    }
    at::Tensor flat = pieces.size() == 1 ? pieces[0] : at::cat(pieces);
    if (flat.numel() < n * m) flat = at::constant_pad_nd(flat, {0, n * m - flat.numel()});
    return {.key = key,
            .gradients = std::move(gradients),
            .matrix = flat.view({n, m}),
            .rank = std::min({n, m, options_.rank})};
  }

  /// The same on all ranks, another in every step.
  at::Tensor first_q(const GradientMatrix& part, std::int64_t step) const {
    random::Sequence sequence(options_.seed, random::Stream::compression, static_cast<std::uint64_t>(step),
                              static_cast<std::uint64_t>(part.key));
    at::Tensor q = at::empty({part.matrix.size(1), part.rank}, at::kDouble);
    double* const values = q.mutable_data_ptr<double>();
    for (std::int64_t i = 0; i < q.numel(); ++i) values[i] = sequence.normal();
    return q.to(part.matrix.options());
  }

  /// Once the Ps are averaged: averages the Qs, and puts the products instead of the gradients.
  at::Tensor finish(const GradBucket& bucket, std::vector<GradientMatrix>& parts,
                    const std::vector<at::Tensor>& uncompressed, const at::Tensor& message) {
    std::int64_t begin = 0;
    const auto next_of = [&begin](const at::Tensor& from, at::IntArrayRef shape) {
      const std::int64_t count = c10::multiply_integers(shape);
      begin += count;
      return from.narrow(0, begin - count, count).view(shape);
    };
    for (const at::Tensor& gradient : uncompressed) gradient.copy_(next_of(message, gradient.sizes()));
    if (parts.empty()) return bucket.buffer;

    std::vector<at::Tensor> ps;
    std::int64_t count = 0;
    for (const GradientMatrix& part : parts) {
      const at::Tensor p = next_of(message, {part.matrix.size(0), part.rank});
      ps.push_back(orthonormalized(p.to(part.matrix.scalar_type())));
      count += part.q.numel();
    }
    const at::Tensor qs = pool_.take(2 * bucket.index + 1, count, message.options());
    begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      next_of(qs, parts[i].q.sizes()).copy_(at::mm(parts[i].matrix.t(), ps[i]));
    }
    mpi::Collectives& collectives = pool_.collectives();
    collectives.wait(start_all_reduce(qs, collectives, mpi::ReduceOp::average));
    begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].q.copy_(next_of(qs, parts[i].q.sizes()));
      if (options_.has_warm_start) keep(warm_qs_[parts[i].key], parts[i].q);
      take_over(bucket, parts[i], at::mm(ps[i], parts[i].q.t()));
    }
    return bucket.buffer;
  }

  /// Gradients become their approximation; the rest is remembered.
  void take_over(const GradBucket& bucket, const GradientMatrix& part, const at::Tensor& approximation) {
    const at::Tensor values = approximation.view({-1});
    const at::Tensor lost = options_.has_error_feedback ? part.matrix.view({-1}) - values : at::Tensor();
    std::int64_t begin = 0;
    for (const std::size_t g : part.gradients) {
      const at::Tensor& gradient = bucket.gradients[g];
      if (lost.defined()) keep(errors_[bucket.places[g]], lost.narrow(0, begin, gradient.numel()));
      gradient.copy_(values.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
  }

  MessagePool pool_;
  PowerSgdOptions options_;
  std::int64_t step_ = 0;                     // steps begun so far
  std::map<std::size_t, at::Tensor> errors_;  // parameter -> the part of its gradients that this rank has not sent yet
  std::map<std::int64_t, at::Tensor> warm_qs_;  // GradientMatrix::key -> the Q of the last step
  std::int64_t loads_ = 0;                      // loads of the state, whose tensors are others then
};

}  // namespace

PowerSgdOptions PowerSgdOptions::from(const Section& ddp) {
  return {.rank = ddp.integer("powersgd_rank"),
          .start_step = ddp.integer("powersgd_start_step"),
          .min_compression_rate = ddp.real("powersgd_min_compression_rate"),
          .has_error_feedback = ddp.boolean("powersgd_error_feedback"),
          .has_warm_start = ddp.boolean("powersgd_warm_start"),
          .is_batched = ddp.boolean("powersgd_batched")};
}

KeySpecs power_sgd_keys() {
  return {
      keys::integer("ddp.powersgd_rank", "1", "powersgd: rank of the matrices that approximate the gradients", 1),
      keys::integer("ddp.powersgd_start_step", "1000",
                    "powersgd: number of steps without compression; at least 2 with error feedback or warm start", 0),
      keys::real("ddp.powersgd_min_compression_rate", "2",
                 "powersgd: gradients with a lower compression rate are sent uncompressed", 0),
      keys::boolean("ddp.powersgd_error_feedback", "true",
                    "powersgd: add the compression error to the next step. Requires memory for an additional copy of "
                    "the gradients"),
      keys::boolean("ddp.powersgd_warm_start", "true",
                    "powersgd: start the approximation from the matrices of the previous step"),
      keys::boolean("ddp.powersgd_batched", "false",
                    "powersgd: compress a whole bucket as one matrix, which is faster and less accurate"),
  };
}

ChosenHook power_sgd_hook(mpi::Collectives& collectives, const PowerSgdOptions& options) {
  const auto power_sgd = std::make_shared<PowerSgd>(collectives, options);
  return {.hook = [power_sgd](const GradBucket& bucket) { return power_sgd->start(bucket); },
          .memory = power_sgd,
          .is_recordable = options.has_warm_start};  // a Q that begins at random is drawn by the CPU
}

}  // namespace lockstep::parallel
