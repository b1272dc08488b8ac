// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/pickle.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "checkpoints/foreign/pickle_stack.hpp"
#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace {

using Kind = PickleValue::Kind;

constexpr std::size_t kMaxIntegerBytes = 1024;

/// Any two's complement number in decimal.
std::string decimal(std::vector<std::uint8_t> bytes) {  // little endian
  const bool is_negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  if (is_negative) {
    unsigned carry = 1;
    for (std::uint8_t& byte : bytes) {
      carry += static_cast<std::uint8_t>(~byte);
      byte = static_cast<std::uint8_t>(carry);
      carry >>= 8;
    }
  }
  std::string digits;
  while (std::ranges::any_of(bytes, [](std::uint8_t byte) { return byte != 0; })) {
    unsigned rest = 0;
    for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
      rest = rest << 8 | *byte;
      *byte = static_cast<std::uint8_t>(rest / 10);
      rest %= 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  if (is_negative) digits += '-';
  return digits.empty() ? "0" : std::string(digits.rbegin(), digits.rend());
}

/// The machine that a pickle is a program for, less everything that could do something.
class Machine : private PickleStack {
 public:
  using PickleStack::PickleStack;

  Pickle run() {
    if (bytes_.empty()) fail("it is empty");
    while (true) {
      opcode_at_ = position_;
      const auto opcode = number<std::uint8_t>();
      if (opcode_at_ == 0 && opcode != 0x80) fail("it does not start with a protocol");
      if (opcode == '.') break;
      const Action action = actions()[opcode];
      if (action == nullptr) {
        fail("opcode " + std::to_string(opcode) + " is not needed for tensors and is not allowed; nothing was executed",
             CheckpointFault::refused);
      }
      action(*this);
    }
    pickle_.root = pop();
    pickle_.size = position_;
    const PickleValue& root = value(pickle_.root);
    if (is_unknown(root)) refuse_class(root);
    return std::move(pickle_);
  }

 private:
  // --- opcodes ---

  using Action = void (*)(Machine&);

  /// The actions by opcode; null = the opcode is not allowed.
  static const std::array<Action, 256>& actions();

  void require_protocol() {
    const int protocol = number<std::uint8_t>();
    if (protocol == 2) return;
    fail("it has pickle protocol " + std::to_string(protocol) +
         "; only protocol 2, the default of torch.save, is supported: save it again without pickle_protocol");
  }

  std::vector<std::uint32_t> popped(std::size_t count) {
    std::vector<std::uint32_t> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    return items;
  }

  void set_items(const std::vector<std::uint32_t>& items) {
    if (items.size() % 2 != 0) fail("a key has no value");
    append(Kind::map, "a map", items);
  }

  void recall(std::uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail("it reads memo entry " + std::to_string(number) + ", which was never written");
    stack_.push_back(found->second);
  }

  void push_long(std::size_t count) {
    const auto bytes = take(count);
    if (bytes.size() > kMaxIntegerBytes) return push_unknown(Kind::unknown, "int");
    if (bytes.size() > 8) {
      const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
      return push_converted_text(decimal({first, first + bytes.size()}));
    }
    const bool is_negative = !bytes.empty() && (bytes.back() & std::byte{0x80}) != std::byte{0};
    std::int64_t value = is_negative ? -1 : 0;
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    push_integer(value);
  }

  void push_real() {
    std::uint64_t bits = 0;
    for (const std::byte byte : take(8)) bits = bits << 8 | std::to_integer<std::uint64_t>(byte);
    push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
  }

  void push_name() {
    const std::string module = line();
    const std::string name = module + "." + line();
    const auto* row = std::ranges::find(kAllowedNames, name, &AllowedName::name);
    // A dot inside the second line would lead elsewhere; no allowed name has one there.
    const bool is_split_well = row != std::end(kAllowedNames) && row->name.rfind('.') == module.size();
    if (!is_split_well) return push_unknown(Kind::unknown_name, name);
    if (row->kind == Named::dtype) return push({.kind = Kind::dtype, .dtype = row->dtype, .text = name});
    push({.kind = Kind::name, .integer = row - std::begin(kAllowedNames)});
  }

  /// " (under 'conv.weight')": the last text before this one is the key that is being given a value.
  std::string nearest_key() {
    for (auto index = stack_.rbegin(); index != stack_.rend(); ++index) {
      const PickleValue& found = value(*index);
      if (found.kind == Kind::text && found.text != "storage") return quoted(" (under", found.text) + ")";
    }
    return "";
  }

  // --- what is built of them ---

  static bool is_unknown(const PickleValue& found) {
    return found.kind == Kind::unknown || found.kind == Kind::unknown_name;
  }
  [[noreturn]] void refuse_class(const PickleValue& found) {
    fail(refused_class(found.text, found.integer != 0) + nearest_key(), CheckpointFault::refused);
  }

  /// The attributes of an object, such as the versions of a model's layers, are not needed.
  void set_state(std::uint32_t state) {
    PickleValue& object = value(peek());
    if (object.kind == Kind::map) {
      if (is_unknown(value(state))) refuse_class(value(state));
      return;
    }
    if (object.kind == Kind::tensor || object.kind == Kind::unsupported) return;
    if (object.kind != Kind::unknown) fail("it uses a value of another type as a map with attributes");
    if (has_parameters(value(state))) object.integer = 1;
  }

  /// Whether these are the attributes of a module that has parameters, itself or in its submodules.
  bool has_parameters(const PickleValue& attributes) {
    for (std::size_t i = 0; attributes.kind == Kind::map && i < attributes.items.size(); i += 2) {
      const std::string& name = value(attributes.items[i]).text;
      const std::vector<std::uint32_t>& items = value(attributes.items[i + 1]).items;
      for (std::size_t k = 1; k < items.size(); k += 2) {
        const PickleValue& item = value(items[k]);
        if (name == "_parameters" && (item.kind == Kind::tensor || item.kind == Kind::unsupported)) return true;
        if (name == "_modules" && item.kind == Kind::unknown && item.integer != 0) return true;
      }
    }
    return false;
  }

  const AllowedName& name_of(std::uint32_t index) {
    const PickleValue& found = value(index);
    if (is_unknown(found)) refuse_class(found);
    if (found.kind != Kind::name) fail("it calls a value that is not a name");
    return kAllowedNames[found.integer];
  }
  std::int64_t integer_of(std::uint32_t index) {
    if (value(index).kind != Kind::integer) fail("a tensor's number does not fit 64 bits");
    return value(index).integer;
  }
  std::vector<std::int64_t> integers_of(std::uint32_t index) {
    const PickleValue& found = value(index);
    if (found.kind != Kind::tuple && found.kind != Kind::list) fail("a tensor's shape or stride is not a tuple");
    if (found.items.size() > kMaxDimensions) fail("a tensor has more than 32 dimensions");
    std::vector<std::int64_t> numbers;
    for (const std::uint32_t item : found.items) numbers.push_back(integer_of(item));
    const bool is_negative = std::ranges::any_of(numbers, [](std::int64_t one) { return one < 0; });
    if (is_negative) fail("a tensor's shape or stride is negative");
    return numbers;
  }

  struct StorageType {
    DType dtype;
    std::vector<std::uint32_t> other;  ///< the name, if `dtype` only has the same size
  };

  /// None if the size of an element is not known.
  std::optional<StorageType> type_of_storage(std::uint32_t name) {
    if (!is_unknown(value(name))) {
      const AllowedName& type = name_of(name);
      if (type.kind != Named::storage && type.kind != Named::untyped_storage) fail("a storage has no element type");
      return StorageType{type.dtype, {}};
    }
    const auto* const row = std::ranges::find(kUnsupportedStorages, value(name).text, &UnsupportedStorage::name);
    if (row == std::end(kUnsupportedStorages)) return std::nullopt;
    return StorageType{row->same_size, {name}};
  }

  void push_storage() {
    const std::vector<std::uint32_t> id = value(pop()).items;
    if (id.size() == 4 && value(id[0]).text == "module") {  // a class with its source, before version 1.6
      stack_.push_back(id[1]);
      return;
    }
    if (id.size() < 5 || value(id[0]).text != "storage" || value(id[2]).kind != Kind::text) {
      fail("a storage has an unexpected name");
    }
    const auto type = type_of_storage(id[1]);
    if (!type) return push_unknown(Kind::unsupported, "a tensor of a " + value(id[1]).text);
    const std::int64_t count = integer_of(id[4]);
    std::int64_t bytes = 0;
    if (count < 0 || __builtin_mul_overflow(count, static_cast<std::int64_t>(size_of(type->dtype)), &bytes)) {
      fail("a storage of " + std::to_string(count) + " elements is impossible");
    }
    push({.kind = Kind::storage,
          .dtype = type->dtype,
          .integer = bytes,
          .text = value(id[2]).text,
          .items = type->other});
  }

  /// Describes a tensor that no array of ours can hold; "" for others.
  std::string unsupported_tensor(const std::vector<std::uint32_t>& args, bool is_typed) {
    const PickleValue& storage = value(args[0]);
    if (storage.kind == Kind::unsupported) return storage.text;
    const bool has_other_type = storage.kind == Kind::storage && !storage.items.empty();
    if (has_other_type) return "a tensor of a " + value(storage.items.front()).text;
    if (is_typed && is_unknown(value(args[6]))) return "a tensor of type " + value(args[6]).text;
    const std::size_t metadata_at = is_typed ? 7 : 6;
    if (args.size() <= metadata_at) return "";
    const PickleValue& metadata = value(args[metadata_at]);
    for (std::size_t i = 1; metadata.kind == Kind::map && i < metadata.items.size(); i += 2) {
      if (value(metadata.items[i]).integer != 0) return "a tensor with a pending conjugation or negation";
    }
    return "";
  }

  void push_tensor(const std::vector<std::uint32_t>& args, bool is_typed) {
    if (args.size() < (is_typed ? 7 : 4)) fail("a tensor has too few arguments");
    const std::string unsupported = unsupported_tensor(args, is_typed);
    if (!unsupported.empty()) return push_unknown(Kind::unsupported, unsupported);
    if (value(args[0]).kind != Kind::storage) fail("a tensor has no storage");
    PickleTensor tensor{.dtype = value(args[is_typed ? 6 : 0]).dtype,
                        .storage = args[0],
                        .offset = integer_of(args[1]),
                        .shape = integers_of(args[2]),
                        .strides = integers_of(args[3])};
    if (is_typed && value(args[6]).kind != Kind::dtype) fail("a tensor has no element type");
    if (tensor.offset < 0) fail("a tensor starts before its storage");
    if (tensor.shape.size() != tensor.strides.size()) fail("a tensor has a different number of strides and dimensions");
    pickle_.tensors.push_back(std::move(tensor));
    push({.kind = Kind::tensor, .integer = static_cast<std::int64_t>(pickle_.tensors.size() - 1)});
  }

  /// The result of a call, which is never made: a value of a known kind, or an empty one with the name of the function.
  void reduce() {
    const std::uint32_t args_at = pop();
    if (value(args_at).kind != Kind::tuple) fail("it calls a name without a tuple");
    call(pop(), value(args_at).items);
  }

  /// An object of an unknown class, or the result of an unknown function: its arguments are left out.
  void call_unknown(const PickleValue& called) {
    const auto is_this = [&called](std::string_view name) {
      return name.ends_with('.') ? called.text.starts_with(name) : called.text == name;
    };
    const bool is_data = std::ranges::find(kDataClasses, called.text) != std::end(kDataClasses);
    if (!is_data && std::ranges::any_of(kRefusedCalls, is_this)) refuse_class(called);
    const auto* const row = std::ranges::find(kUnsupportedTensors, called.text, &UnsupportedTensor::name);
    if (row == std::end(kUnsupportedTensors)) return push_unknown(Kind::unknown, called.text);
    push_unknown(Kind::unsupported, std::string(row->description));
  }

  /// A tensor with attributes, or of a subclass: the function and the arguments that create it without them.
  void push_from_type(const std::vector<std::uint32_t>& args) {
    if (args.size() < 3 || value(args[2]).kind != Kind::tuple) fail("a tensor has too few arguments");
    const bool is_nested = value(args[0]).kind == Kind::name && name_of(args[0]).kind == Named::rebuilt_from_type;
    if (is_nested) fail("a tensor is nested in another");
    call(args[0], value(args[2]).items);
  }

  void push_parameter(const std::vector<std::uint32_t>& args) {
    const Kind kind = args.empty() ? Kind::none : value(args[0]).kind;
    if (kind == Kind::unknown) return push_unknown(Kind::unsupported, "a parameter of " + value(args[0]).text);
    if (kind != Kind::tensor && kind != Kind::unsupported) fail("a parameter is not a tensor");
    stack_.push_back(args[0]);
  }

  void call(std::uint32_t called, const std::vector<std::uint32_t>& args) {
    if (is_unknown(value(called))) return call_unknown(value(called));
    switch (name_of(called).kind) {
      case Named::ordered_map:
        return push_map(args);
      case Named::tensor:
      case Named::tensor_v2:
        return push_tensor(args, false);
      case Named::tensor_v3:
        return push_tensor(args, true);
      case Named::parameter:
      case Named::rebuilt_parameter:
        return push_parameter(args);
      case Named::rebuilt_from_type:
        return push_from_type(args);
      case Named::size:
      case Named::set:
        return push(Kind::list, args.empty() ? std::vector<std::uint32_t>{} : value(args[0]).items);
      case Named::complex:
        return push(Kind::list, args);
      case Named::device:
        return push_device(args);
      case Named::bytes:
        return push_bytes(args);
      default:
        fail("it calls an element type");
    }
  }

  void push_map(const std::vector<std::uint32_t>& args) {
    std::vector<std::uint32_t> items;
    if (!args.empty()) {
      for (const std::uint32_t pair : value(args[0]).items) {
        const PickleValue& found = value(pair);
        if (found.items.size() != 2) fail("an entry of a map is not a pair");
        items.insert(items.end(), found.items.begin(), found.items.end());
      }
    }
    push(Kind::map, std::move(items));
  }

  void push_device(const std::vector<std::uint32_t>& args) {
    if (args.empty()) fail("a device has no name");
    std::string device = value(args[0]).text;
    if (args.size() > 1) device += ":" + std::to_string(value(args[1]).integer);
    push_converted_text(std::move(device));
  }

  /// Given as text whose characters are the bytes.
  void push_bytes(const std::vector<std::uint32_t>& args) {
    std::string bytes;
    const std::string text = args.empty() ? "" : value(args[0]).text;
    for (std::size_t i = 0; i < text.size(); ++i) {
      auto code = static_cast<unsigned char>(text[i]);
      if (code >= 0xC4 || (code >= 0x80 && i + 1 == text.size())) fail("a byte value is out of range");
      if (code >= 0x80)
        code = static_cast<unsigned char>((code & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 63));
      bytes += static_cast<char>(code);
    }
    push({.kind = Kind::bytes, .text = std::move(bytes)});
  }
};

const std::array<Machine::Action, 256>& Machine::actions() {
  static constexpr std::pair<std::uint8_t, Action> kOpcodes[] = {
      {0x80, [](Machine& m) { m.require_protocol(); }},
      {'N', [](Machine& m) { m.push(Kind::none); }},
      {0x88, [](Machine& m) { m.push({.kind = Kind::boolean, .integer = 1}); }},
      {0x89, [](Machine& m) { m.push({.kind = Kind::boolean}); }},
      {'J', [](Machine& m) { m.push_integer(m.number<std::int32_t>()); }},
      {'K', [](Machine& m) { m.push_integer(m.number<std::uint8_t>()); }},
      {'M', [](Machine& m) { m.push_integer(m.number<std::uint16_t>()); }},
      {0x8A, [](Machine& m) { m.push_long(m.number<std::uint8_t>()); }},
      {0x8B, [](Machine& m) { m.push_long(m.number<std::uint32_t>()); }},
      {'G', [](Machine& m) { m.push_real(); }},
      {'X', [](Machine& m) { m.push_text(m.text(m.number<std::uint32_t>())); }},
      {'U', [](Machine& m) { m.push_text(m.text(m.number<std::uint8_t>())); }},
      {'}', [](Machine& m) { m.push(Kind::map); }},
      {']', [](Machine& m) { m.push(Kind::list); }},
      {0x8F, [](Machine& m) { m.push(Kind::list); }},
      {')', [](Machine& m) { m.push(Kind::tuple); }},
      {'c', [](Machine& m) { m.push_name(); }},
      // the stack
      {'(', [](Machine& m) { m.marks_.push_back(m.stack_.size()); }},
      {'q', [](Machine& m) { m.memo_[m.number<std::uint8_t>()] = m.peek(); }},
      {'r', [](Machine& m) { m.memo_[m.number<std::uint32_t>()] = m.peek(); }},
      {'h', [](Machine& m) { m.recall(m.number<std::uint8_t>()); }},
      {'j', [](Machine& m) { m.recall(m.number<std::uint32_t>()); }},
      {'0', [](Machine& m) { m.pop(); }},  // tuples that contain themselves, as the next one
      {'1', [](Machine& m) { m.pop_to_mark(); }},
      // values that consist of others
      {'t', [](Machine& m) { m.push(Kind::tuple, m.pop_to_mark()); }},
      {0x85, [](Machine& m) { m.push(Kind::tuple, m.popped(1)); }},
      {0x86, [](Machine& m) { m.push(Kind::tuple, m.popped(2)); }},
      {0x87, [](Machine& m) { m.push(Kind::tuple, m.popped(3)); }},
      {'a', [](Machine& m) { m.append(Kind::list, "a list", {m.pop()}); }},
      {'e', [](Machine& m) { m.append(Kind::list, "a list", m.pop_to_mark()); }},
      {'s', [](Machine& m) { m.set_items(m.popped(2)); }},
      {'u', [](Machine& m) { m.set_items(m.pop_to_mark()); }},
      {'Q', [](Machine& m) { m.push_storage(); }},
      {'R', [](Machine& m) { m.reduce(); }},
      {0x81, [](Machine& m) { m.reduce(); }},
      {'b', [](Machine& m) { m.set_state(m.pop()); }},
  };
  static const std::array<Action, 256> all = [] {
    std::array<Action, 256> table{};
    for (const auto& [opcode, action] : kOpcodes) table[opcode] = action;
    return table;
  }();
  return all;
}

}  // namespace

std::string refused_class(const std::string& name, bool is_module) {
  if (is_module) {
    return quoted("it contains a whole module", name) +
           " instead of its tensors; nothing was executed. In Python, save model.state_dict() instead";
  }
  return quoted("it imports", name) +
         ", which is not a container or an element type of tensors; nothing was executed. In Python, save "
         "model.state_dict() instead";
}

Pickle parse_pickle(std::span<const std::byte> bytes) { return Machine(bytes).run(); }

}  // namespace lockstep::checkpoints
