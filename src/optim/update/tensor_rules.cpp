// SPDX-License-Identifier: BSD-3-Clause
#include "optim/update/tensor_rules.hpp"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

/// The tensors that an update changes: the parameters, then each state that they have.
TensorList tensors_of(const TensorUpdate& update) {
  TensorList tensors = update.parameters;
  for (const TensorList& slot : update.states) {
    for (const at::Tensor& state : slot) {
      if (state.defined()) tensors.push_back(state);
    }
  }
  return tensors;
}

template <class T>
std::vector<T> selected_from(const std::vector<T>& all, const std::vector<std::size_t>& members) {
  std::vector<T> some;
  for (const std::size_t i : members) some.push_back(all[i]);
  return some;
}

}  // namespace

TensorList concatenated(TensorList first, const TensorList& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TensorUpdate selected(const TensorUpdate& update, const std::vector<std::size_t>& members) {
  TensorUpdate some = update;
  some.parameters = selected_from(update.parameters, members);
  some.gradients = selected_from(update.gradients, members);
  for (std::size_t slot = 0; slot < update.states.size(); ++slot) {
    some.states[slot] = selected_from(update.states[slot], members);
  }
  if (!update.dims.empty()) some.dims = selected_from(update.dims, members);
  return some;
}

std::vector<TensorUpdate> parts_for_stacks(const TensorUpdate& update) {
  std::vector<TensorUpdate> parts;
  std::size_t first = 0;
  for (const TensorList& part : divided_for_stacks(update.parameters)) {
    std::vector<std::size_t> members(part.size());
    std::iota(members.begin(), members.end(), first);
    first += part.size();
    parts.push_back(selected(update, members));
  }
  return parts;
}

std::vector<std::vector<std::size_t>> alike(const TensorList& tensors) {
  std::map<std::vector<std::int64_t>, std::vector<std::size_t>> by_shape;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel() > 0) by_shape[tensors[i].sizes().vec()].push_back(i);
  }
  std::vector<std::vector<std::size_t>> all;
  for (const auto& [shape, members] : by_shape) {
    const at::Tensor& one = tensors[members.front()];
    const std::int64_t together = one.is_cpu() ? 1 : (kStackElements + one.numel() - 1) / one.numel();
    for (auto next = members.begin(); next != members.end();) {
      const auto end = next + std::min(together, members.end() - next);
      all.emplace_back(next, end);
      next = end;
    }
  }
  return all;
}

at::Tensor stacked(const TensorList& list) { return list.size() == 1 ? list.front().unsqueeze(0) : at::stack(list); }

bool is_first(const TensorUpdate& update) {
  if (update.live != nullptr) {
    update.live->fixed([](const Options&, std::int64_t step) { return step == 1 ? 1 : 0; });
  }
  return update.step == 1;
}

void change_unless_void(const TensorUpdate& update, const std::function<void(const TensorUpdate&)>& body) {
  if (!update.is_void.defined()) return body(update);
  const TensorList tensors = tensors_of(update);
  const TensorStack copies = TensorStack::of(tensors);
  TensorUpdate of_copies = update;
  auto next = copies.parts().begin();
  for (at::Tensor& parameter : of_copies.parameters) parameter = *next++;
  for (TensorList& slot : of_copies.states) {
    for (at::Tensor& state : slot) {
      if (state.defined()) state = *next++;
    }
  }
  body(of_copies);
  assign(update, tensors, copies.parts());
}

void assign(const TensorUpdate& update, const TensorList& tensors, const TensorList& values) {
  if (!update.is_void.defined()) return at::_foreach_copy_(tensors, values);
  // The kernel of SGD is the one that reads on the device whether it may write. Its first step fills the momentum with
  // the gradients; the values are the gradients and, at a learning rate of 0, the parameters.
  at::_fused_sgd_(values, values, tensors, /*weight_decay=*/0, /*momentum=*/1, /*lr=*/0.0, /*dampening=*/0,
                  /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/true, {}, update.is_void);
}

TensorList downhill(const TensorUpdate& update) {
  return update.options->at("maximize") != 0 ? at::_foreach_neg(update.gradients) : update.gradients;
}

TensorList norms_of(const TensorList& list) { return at::_foreach_norm(list, 2, at::kDouble); }

}  // namespace lockstep::optim
