// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <ATen/core/Tensor.h>

#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>

namespace lockstep::parallel {

/// The tensors in a type of your own: specialize it with a function `visit(T& value, const Visit& visit)`.
template <class T>
struct OutputTraits;

/// Calls `visit(at::Tensor&)` for every tensor in the result of a forward: a tensor, Outputs, a number, a text, or
/// pairs, tuples, arrays, vectors, maps and optionals of these, nested to any depth. Specialize OutputTraits for your
/// own type; an unknown type does not compile.
template <class T, class Visit>
void visit_tensors(T& value, const Visit& visit) {
  if constexpr (requires { OutputTraits<T>::visit(value, visit); }) {
    OutputTraits<T>::visit(value, visit);
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (std::is_same_v<T, batch::Outputs>) {
    visit_tensors(value.entries(), visit);
  } else if constexpr (requires { value.has_value(); }) {  // std::optional
    if (value) visit_tensors(*value, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {  // pairs, tuples, arrays
    std::apply([&visit](auto&... each) { (visit_tensors(each, visit), ...); }, value);
  } else if constexpr (std::ranges::range<T> && !std::is_same_v<std::remove_const_t<T>, std::string>) {
    for (auto& each : value) visit_tensors(each, visit);
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<std::remove_const_t<T>, std::string>,
                  "specialize lockstep::parallel::OutputTraits for what this forward returns");
  }
}

}  // namespace lockstep::parallel
