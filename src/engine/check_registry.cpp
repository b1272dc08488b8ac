// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <algorithm>
#include <map>
#include <variant>

#include "core/text/table.hpp"
#include "engine/session.hpp"

namespace lockstep::engine {

namespace {

/// A table of the registry, for messages.
struct TableFacts {
  std::string kind;          ///< kind of its rows, such as "model"
  std::string section;       ///< section of the keys; empty = they are options inside a text, such as those of a hook
  std::string functions;     ///< names of the functions that a row must have
  KeySpecs common = {};      ///< options that all rows have
  bool can_be_none = false;  ///< "none" selects no row
};

struct Declaration {
  KeySpec key;
  std::string owner;
  bool is_builtin = false;
};

bool are_equal(const KeySpec& a, const KeySpec& b) {
  return a.name == b.name && a.type == b.type && a.default_value == b.default_value && a.min == b.min &&
         a.max == b.max && a.min_is_exclusive == b.min_is_exclusive && a.choices == b.choices;
}

std::string text_of(const Declaration& declaration) {
  return declaration.owner + " (" + range_of(declaration.key) + "; default '" + declaration.key.default_value + "')";
}

/// The declarations of keys, each name once.
class Declarations {
 public:
  void add(const Declaration& added) {
    const auto [known, is_new] = by_name_.emplace(added.key.name, added);
    if (is_new || (known->second.is_builtin && added.is_builtin) || are_equal(known->second.key, added.key)) return;
    throw ConfigError("key '" + added.key.name + "' is declared by " + text_of(known->second) + " and by " +
                      text_of(added) + "; declare the same type, default and range, or choose another name");
  }

  /// @throws ConfigError  a name is also the former name of another key
  void check_old_names() const {
    std::map<std::string, const Declaration*> former;
    for (const auto& [name, declaration] : by_name_) {
      for (const std::string& old_name : declaration.key.old_names) {
        const auto current = by_name_.find(old_name);
        const Declaration* const other =
            current != by_name_.end() ? &current->second : former.emplace(old_name, &declaration).first->second;
        if (other == &declaration) continue;
        throw ConfigError("'" + old_name + "' is a name of a key of " + other->owner + " and the former name of key '" +
                          name + "' of " + declaration.owner + "; choose another name");
      }
    }
  }

 private:
  std::map<std::string, Declaration> by_name_;
};

template <class Row>
const KeySpecs& keys_of(const Row& row) {
  static const KeySpecs none;
  if constexpr (requires { row.keys; }) {
    return row.keys;
  } else {
    return none;
  }
}

/// Whether the row has the name and the keys of a built-in one.
template <class Row>
bool is_builtin(const Row& row, const std::vector<Row>& builtin) {
  return std::any_of(builtin.begin(), builtin.end(), [&row](const Row& other) {
    return other.name == row.name && std::equal(keys_of(row).begin(), keys_of(row).end(), keys_of(other).begin(),
                                                keys_of(other).end(), are_equal);
  });
}

template <class Row>
void check_names(const TableFacts& table, const std::vector<Row>& rows, const std::vector<Row>& builtin) {
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    if (row->name.empty() || row->name.find_first_of(", \t\r\n=#()") != std::string::npos) {
      throw ConfigError("this program's " + table.kind + " has the name '" + row->name +
                        "'; a name is not empty and contains no blanks and none of , = # ( )");
    }
    if (table.can_be_none && row->name == "none") {
      throw ConfigError("this program's " + table.kind + " has the name 'none', which selects no " + table.kind +
                        " of Lockstep; choose another name");
    }
    const auto is_same = [row](const Row& other) { return other.name == row->name; };
    if (std::none_of(rows.begin(), row, is_same)) continue;
    const bool is_of_lockstep = std::any_of(builtin.begin(), builtin.end(), is_same);
    throw ConfigError((is_of_lockstep ? "a built-in " + table.kind + " and this program's " + table.kind + " have"
                                      : "two rows of this program (" + table.kind + ") have") +
                      " the name '" + row->name + "'; choose another name");
  }
}

void check_key(const TableFacts& table, const Declaration& declared) {
  const KeySpec& key = declared.key;
  const bool is_option = table.section.empty();
  if (is_option ? key.name.find('.') != std::string::npos : !key.name.starts_with(table.section + ".")) {
    throw ConfigError("key '" + key.name + "' of " + declared.owner +
                      (is_option ? " is an option, and its name must not contain a dot"
                                 : " must begin with '" + table.section + ".'"));
  }
  const bool is_not_given =  // an option without a value, or an empty list
      key.type == KeyType::texts ? key.default_value.empty() : is_option && key.default_value == "nan";
  const std::string fault = is_not_given ? "" : fault_in(key, key.default_value);
  if (!fault.empty()) throw ConfigError("key '" + key.name + "' of " + declared.owner + ": the default " + fault);
}

/// @param is_complete  whether a row has the functions that it needs
template <class Row, class IsComplete>
void check_table(const TableFacts& table, const std::vector<Row>& rows, const std::vector<Row>& builtin,
                 Declarations& declarations, const IsComplete& is_complete) {
  check_names(table, rows, builtin);
  for (const Row& row : rows) {
    const bool is_of_lockstep = is_builtin(row, builtin);
    const std::string owner =
        (is_of_lockstep ? "the built-in " : "this program's ") + table.kind + " '" + row.name + "'";
    if (!is_complete(row)) throw ConfigError(owner + " has no function; set " + table.functions);
    Declarations options;  // those of one row
    for (const KeySpec& key : table.common) options.add({key, "Lockstep", false});
    for (const KeySpec& key : keys_of(row)) {
      const Declaration declared{key, owner, is_of_lockstep};
      check_key(table, declared);
      (table.section.empty() ? options : declarations).add(declared);
    }
  }
}

bool is_complete_element(const optim::ElementRule& rule) {
  return rule.coefficients != nullptr && rule.update32 != nullptr && rule.update64 != nullptr;
}

bool is_complete_rule(const optim::Rule& rule) {
  if (rule.read == nullptr || rule.state_names == nullptr) return false;
  if (const auto* const element = std::get_if<optim::ElementRule>(&rule.kind)) return is_complete_element(*element);
  if (const auto* const whole = std::get_if<optim::WholeRule>(&rule.kind)) return whole->update != nullptr;
  if (const auto* const closure = std::get_if<optim::ClosureRule>(&rule.kind)) return closure->step != nullptr;
  return is_complete_element(std::get<optim::TensorRule>(rule.kind).elements);
}

/// Every key that belongs to no row.
KeySpecs common_keys(Registry registry) {
  const auto clear = [](auto&... tables) {
    const auto clear_rows = [](auto& rows) {
      for (auto& row : rows) row.keys.clear();
    };
    (clear_rows(tables), ...);
  };
  clear(registry.sources, registry.samplers, registry.models, registry.losses, registry.rules, registry.steps,
        registry.comm_hooks);
  return all_keys(registry);
}

}  // namespace

void check_registry(const Registry& registry, const KeySpecs& more) {
  const Registry& builtin = builtin_registry();
  Declarations keys;
  for (const KeySpecs& common : {common_keys(registry), more}) {
    for (const KeySpec& key : common) keys.add({key, "Lockstep", true});
  }
  const auto has_make = [](const auto& row) { return bool(row.make); };
  check_table({"data source", "data", "open or open_images"}, registry.sources, builtin.sources, keys,
              [](const data::Source& row) { return row.open || row.open_images; });
  check_table({"sampler", "data", "make"}, registry.samplers, builtin.samplers, keys, has_make);
  check_table({"transform", "", "make"}, registry.transforms, builtin.transforms, keys, has_make);
  check_table({"model", "model", "make"}, registry.models, builtin.models, keys, has_make);
  check_table({"loss", "loss", "make"}, registry.losses, builtin.losses, keys, has_make);
  check_table({"optimizer", "optim", "read, state_names and the functions of its kind"}, registry.rules, builtin.rules,
              keys, is_complete_rule);
  check_table({.kind = "average", .section = "ema", .functions = "weight", .can_be_none = true}, registry.averages,
              builtin.averages, keys, [](const optim::AverageRule& row) { return bool(row.weight); });
  check_table({"curve", "", "make or make_feedback", schedule::common_curve_keys()}, registry.curves, builtin.curves,
              keys, [](const schedule::Curve& row) { return row.make != nullptr || row.make_feedback != nullptr; });
  check_table({"meter", "", "make or make_for_task", metrics::common_meter_keys()}, registry.meters, builtin.meters,
              keys, [](const metrics::MeterRow& row) { return row.make || row.make_for_task; });
  check_table({"step", "train", "make"}, registry.steps, builtin.steps, keys, has_make);
  check_table({"hook", "", "make", {common_hook_key()}}, registry.hooks, builtin.hooks, keys, has_make);
  check_table({.kind = "communication hook", .section = "ddp", .functions = "make", .can_be_none = true},
              registry.comm_hooks, builtin.comm_hooks, keys, has_make);
  keys.check_old_names();
}

}  // namespace lockstep::engine
