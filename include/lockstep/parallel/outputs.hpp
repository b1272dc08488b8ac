// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/outputs.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// Calls `visit(at::Tensor&)` for every tensor in the result of a forward: a tensor, Outputs, a number, a text, or
/// pairs, tuples, arrays, vectors, maps and optionals of these, nested to any depth. Specialize OutputTraits for your
/// own type; an unknown type does not compile.
template <class T>
struct OutputTraits {
  template <class Visit>
  static void visit(T&, const Visit&) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>,
                  "specialise lockstep::parallel::OutputTraits for what this forward returns");
  }
};

template <class T, class Visit>
void visit_tensors(T& value, const Visit& visit) {
  OutputTraits<T>::visit(value, visit);
}

template <>
struct OutputTraits<at::Tensor> {
  template <class Visit>
  static void visit(at::Tensor& value, const Visit& visit) {
    visit(value);
  }
};

template <>
struct OutputTraits<batch::Outputs> {
  template <class Visit>
  static void visit(batch::Outputs& value, const Visit& visit) {
    for (auto& [name, tensor] : value.entries()) visit(tensor);
  }
};

template <class T>
struct OutputTraits<std::optional<T>> {
  template <class Visit>
  static void visit(std::optional<T>& value, const Visit& visit) {
    if (value) visit_tensors(*value, visit);
  }
};

template <class A, class B>
struct OutputTraits<std::pair<A, B>> {
  template <class Visit>
  static void visit(std::pair<A, B>& value, const Visit& visit) {
    if constexpr (!std::is_const_v<A>) visit_tensors(value.first, visit);
    visit_tensors(value.second, visit);
  }
};

template <class... T>
struct OutputTraits<std::tuple<T...>> {
  template <class Visit>
  static void visit(std::tuple<T...>& value, const Visit& visit) {
    std::apply([&visit](T&... each) { (visit_tensors(each, visit), ...); }, value);
  }
};

namespace detail {

template <class Range>
struct RangeTraits {
  template <class Visit>
  static void visit(Range& value, const Visit& visit) {
    for (auto& each : value) visit_tensors(each, visit);
  }
};

}  // namespace detail

template <class T>
struct OutputTraits<std::vector<T>> : detail::RangeTraits<std::vector<T>> {};
template <class T, std::size_t kSize>
struct OutputTraits<std::array<T, kSize>> : detail::RangeTraits<std::array<T, kSize>> {};
template <class K, class V>
struct OutputTraits<std::map<K, V>> : detail::RangeTraits<std::map<K, V>> {};
template <class K, class V>
struct OutputTraits<std::unordered_map<K, V>> : detail::RangeTraits<std::unordered_map<K, V>> {};

}  // namespace lockstep::parallel
