// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <torch/types.h>

#include <algorithm>

#include "core/text/text_stream.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

void describe(std::ostream& out, const char* kind, const std::string& name, const at::Tensor& tensor) {
  out << kind << " '" << name << "' " << name_of(dtype_of(tensor, name)) << ' ' << tensor.sizes() << " strides "
      << tensor.strides() << (tensor.requires_grad() ? "" : " frozen") << '\n';
}

/// One line for each parameter and buffer: what must be the same on all ranks.
std::string signature(const models::Model& model, const std::vector<std::string>& ignored) {
  const auto is_ignored = [&](const std::string& name) {
    return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
  };
  TextWriter out;
  for (const auto& item : model.named_parameters()) {
    if (!is_ignored(item.key())) describe(out, "parameter", item.key(), item.value());
  }
  for (const auto& item : model.named_buffers()) {
    if (!is_ignored(item.key())) describe(out, "buffer", item.key(), item.value());
  }
  return out.str();
}

/// Says how many lines there are, if the numbers differ.
std::string counts_of(const std::string& a, const std::string& b) {
  const auto in_a = std::count(a.begin(), a.end(), '\n');
  const auto in_b = std::count(b.begin(), b.end(), '\n');
  if (in_a == in_b) return "";
  return " (" + std::to_string(in_a) + " and " + std::to_string(in_b) + " parameters and buffers)";
}

std::string line_at(const std::string& text, std::size_t position) {
  if (position >= text.size()) return "nothing more";
  const std::size_t before = position == 0 ? std::string::npos : text.rfind('\n', position - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

void verify_same_model(const models::Model& model, const mpi::Communicator& world,
                       const std::vector<std::string>& ignored) {
  const std::vector<std::string> signatures = world.all_gather(signature(model, ignored));
  for (std::size_t rank = 1; rank < signatures.size(); ++rank) {
    const std::string& a = signatures[0];
    const std::string& b = signatures[rank];
    if (a == b) continue;
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto position = static_cast<std::size_t>(in_a - a.begin());
    // Back to the start of the first line that differs: up to there both texts are the same.
    const std::size_t newline = position == 0 ? std::string::npos : a.rfind('\n', position - 1);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    throw_agreed(ExitCode::configuration, "ddp: the models of the ranks differ: rank 0 has " + line_at(a, begin) +
                                              ", rank " + std::to_string(rank) + " has " + line_at(b, begin) +
                                              counts_of(a, b) + "; build the same model on every rank");
  }
}

}  // namespace lockstep::parallel
