// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "checkpoints/foreign/pickle.hpp"
#include "checkpoints/foreign/pytorch.hpp"
#include "checkpoints/format/names.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kPickle = "/data.pkl";
constexpr std::size_t kMaxTooDeep = 100;

/// The folder that all records lie in; "" when there is none such.
std::string folder_of(const Zip& zip) {
  for (const ZipRecord& record : zip.records()) {
    if (!record.name.ends_with(kPickle)) continue;
    const std::string folder = record.name.substr(0, record.name.size() - kPickle.size());
    if (folder.find('/') == std::string::npos) return folder;
  }
  return "";
}

/// Reads the bytes of a storage.
/// @param object  for messages
using ReadStorage = std::function<OwnedBytes(const PickleValue& storage, const std::string& object)>;

/// Puts the values of a pickle into an archive.
class PyTorchReader {
 public:
  PyTorchReader(const ByteSource& source, Expansion& expansion, Pickle pickle, const ReadStorage& read_storage)
      : source_(source), expansion_(expansion), pickle_(std::move(pickle)), read_storage_(read_storage) {
    archive_.set_origin(source_.path());
  }

  Archive read() {
    const PickleValue& root = pickle_.values[pickle_.root];
    if (root.kind == Kind::tensor) {
      put_tensor(root, "/tensor");
    } else if (root.kind == Kind::unsupported) {
      refuse_unsupported("data.pkl", root.text);
    } else if (root.kind == Kind::map || root.kind == Kind::list || root.kind == Kind::tuple) {
      put_children(root, "", 0);
    } else {
      source_.refuse("data.pkl", "it contains no map, list or tensor");
    }
    if (views_.empty() && !unsupported_.path.empty()) refuse_unsupported(unsupported_.path, unsupported_.description);
    return std::move(archive_);
  }

  const std::vector<std::string>& left_out() const noexcept { return left_out_; }

 private:
  // --- the tree ---

  /// @param path  of the map or list; "" for the root
  void put_children(const PickleValue& parent, const std::string& path, std::size_t depth) {
    if (!path.empty()) archive_.add_group(path);
    containers_.push_back(&parent);
    const bool is_map = parent.kind == Kind::map;
    const TextKeys texts = is_map ? texts_beside_numbers(parent) : TextKeys();
    for (std::size_t i = 0; i < parent.items.size(); i += is_map ? 2 : 1) {
      if (++visited_ > kMaxObjects)
        source_.refuse("data.pkl", "it contains more than a million entries", CheckpointFault::refused);
      const PickleValue& value = pickle_.values[parent.items[is_map ? i + 1 : i]];
      if (!is_map) {
        put_child(value, path, std::to_string(i), depth);
      } else if (const auto name = name_of_key(pickle_.values[parent.items[i]], texts, path)) {
        put_child(value, path, *name, depth);
      }
    }
    containers_.pop_back();
  }

  using TextKeys = std::unordered_set<std::string_view>;

  static bool is_python_text(const PickleValue& key) { return key.kind == Kind::text && key.integer == 0; }

  /// The texts among the keys of a map that also has numbers; none if it has only texts.
  TextKeys texts_beside_numbers(const PickleValue& map) const {
    TextKeys texts;
    for (std::size_t i = 0; i < map.items.size(); i += 2) {
      const PickleValue& key = pickle_.values[map.items[i]];
      if (is_python_text(key)) texts.insert(key.text);
    }
    return texts.size() == map.items.size() / 2 ? TextKeys() : texts;
  }

  /// The name of an entry; none if the entry is left out, because its key cannot be a name.
  std::optional<std::string> name_of_key(const PickleValue& key, const TextKeys& texts, const std::string& path) {
    std::string reason;
    if (is_python_text(key)) {
      if (key.text.empty()) reason = "with an empty key";
      if (!is_utf8(key.text)) reason = "with a key that is not UTF-8";
      if (encode_name(key.text).size() > kMaxPartBytes) reason = "with a key of more than 1024 bytes";
      if (reason.empty()) return key.text;
    } else if (key.kind == Kind::text && is_utf8(key.text)) {
      if (!key.text.empty() && !texts.contains(key.text)) return key.text;
      reason = "with '" + key.text + "' as its key, which is also a text";
    } else if (key.kind == Kind::integer) {
      const std::string number = std::to_string(key.integer);
      if (!texts.contains(number)) return number;
      reason = "with the number " + number + " as its key, which is also a text";
    } else {
      reason = "with a key that is neither a text nor an integer";
    }
    const std::string parent = path.substr(path.rfind('/') + 1);
    leave_out("an entry " + reason, path.empty() ? "" : decode_name(parent), "in");
    return std::nullopt;
  }

  /// @param place  "under" a name, or "in" a map
  void leave_out(const std::string& what, const std::string& name, const char* place = "under") {
    left_out_.push_back(what + (name.empty() ? "" : " (" + quoted(place, name) + ")"));
  }

  /// Objects that refer to each other several times would be as many as the leaves of a tree.
  void leave_out_deep(const std::string& path, const std::string& name) {
    if (++too_deep_ > kMaxTooDeep)
      source_.refuse(path.substr(0, 200) + "...", "it is nested too deeply", CheckpointFault::refused);
    leave_out("an object that is nested too deeply", name);
  }

  [[noreturn]] void refuse_unsupported(const std::string& path, const std::string& description) const {
    source_.refuse(path, "it is " + description + ", which is not supported", CheckpointFault::incompatible);
  }

  void put_child(const PickleValue& value, const std::string& path, const std::string& name, std::size_t depth) {
    const std::string group = path.empty() ? "/" : path;
    const std::string child = path + "/" + part_of(source_, name);
    const auto set = [&](Attribute attribute) {
      put_attribute(source_, archive_, group, name, std::move(attribute), group);
    };
    switch (value.kind) {
      case Kind::none:
        return;
      case Kind::boolean:
      case Kind::integer:
        return set(value.integer);
      case Kind::real:
        return set(value.real);
      case Kind::text:
      case Kind::dtype:
        if (!is_utf8(value.text)) return leave_out("a text that is not UTF-8", name);
        return set(value.text);
      case Kind::bytes:
        return put_array(source_, archive_, child, text_array(value.text));
      case Kind::tensor:
        return put_tensor(value, child);
      case Kind::list:
      case Kind::tuple:
      case Kind::map:
        if (std::ranges::find(containers_, &value) != containers_.end()) {
          return leave_out("a reference to an object that contains it", name);
        }
        if (depth + 1 >= kMaxDepth) return leave_out_deep(child, name);
        if (archive_.has(child)) source_.refuse(child, "the name is used twice");
        return put_children(value, child, depth + 1);
      case Kind::unsupported:
        if (unsupported_.path.empty()) unsupported_ = {child, value.text};
        return leave_out(value.text, name);
      case Kind::unknown:
        if (value.integer != 0) source_.refuse(child, refused_class(value.text, true), CheckpointFault::refused);
        return leave_out("an object of " + value.text, name);
      case Kind::unknown_name:
        return leave_out("a reference to " + value.text, name);
      case Kind::name:
        return leave_out("a reference to " + std::string(kAllowedNames[value.integer].name), name);
      case Kind::storage:
        return leave_out("the storage of a tensor", name);
    }
  }

  // --- tensors ---

  void put_tensor(const PickleValue& value, const std::string& path) {
    const PickleTensor& tensor = pickle_.tensors[static_cast<std::size_t>(value.integer)];
    const View view = {pickle_.values[tensor.storage].text, tensor.dtype, tensor.offset, tensor.shape, tensor.strides};
    const auto [same, is_new] = views_.emplace(view, path);
    if (!is_new) return link_array(source_, archive_, path, same->second);
    const auto nbytes = nbytes_of(tensor.dtype, tensor.shape);
    if (!nbytes) source_.refuse(path, "its shape overflows 63 bits");
    const OwnedBytes& storage = storage_of(pickle_.values[tensor.storage], path);
    require_inside(tensor, *nbytes, storage.bytes.size(), path);
    Array array{.dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}, .owner = storage.owner};
    const std::size_t element = size_of(tensor.dtype);
    if (*nbytes == 0) {
      array.owner = nullptr;
    } else if (is_contiguous(tensor)) {
      array.bytes = storage.bytes.subspan(static_cast<std::size_t>(tensor.offset) * element, *nbytes);
    } else {
      expansion_.take(path, *nbytes);
      const std::shared_ptr<std::byte> memory = allocate_aligned(*nbytes);
      std::vector<std::int64_t> strides = tensor.strides;
      for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(element);
      gather(storage.bytes.subspan(static_cast<std::size_t>(tensor.offset) * element), tensor.shape, strides, element,
             {memory.get(), *nbytes});
      array.bytes = {memory.get(), *nbytes};
      array.owner = memory;
    }
    put_array(source_, archive_, path, std::move(array));
  }

  const OwnedBytes& storage_of(const PickleValue& storage, const std::string& path) {
    const auto known = storages_.find(storage.text);
    if (known != storages_.end()) return known->second;
    return storages_.emplace(storage.text, read_storage_(storage, path)).first->second;
  }

  void require_inside(const PickleTensor& tensor, std::uint64_t nbytes, std::uint64_t storage_bytes,
                      const std::string& path) const {
    std::int64_t last = tensor.offset, end = 0;
    bool overflows = false;
    for (std::size_t i = 0; nbytes != 0 && i < tensor.shape.size(); ++i) {
      std::int64_t reach = 0;
      overflows = overflows || __builtin_mul_overflow(tensor.strides[i], tensor.shape[i] - 1, &reach) ||
                  __builtin_add_overflow(last, reach, &last);
    }
    const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
    overflows = overflows || __builtin_add_overflow(last, nbytes != 0 ? 1 : 0, &last) ||
                __builtin_mul_overflow(last, element, &end);
    if (overflows || (nbytes != 0 && static_cast<std::uint64_t>(end) > storage_bytes)) {
      source_.refuse(path, "its shape and strides exceed its storage of " + std::to_string(storage_bytes) + " bytes");
    }
  }

  static bool is_contiguous(const PickleTensor& tensor) {
    std::int64_t expected = 1;
    for (std::size_t i = tensor.shape.size(); i > 0; --i) {
      if (tensor.shape[i - 1] != 1 && tensor.strides[i - 1] != expected) return false;
      expected *= tensor.shape[i - 1];
    }
    return true;
  }

  /// The values that make two tensors one: storage, type, first element, shape and strides.
  using View = std::tuple<std::string, DType, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;

  const ByteSource& source_;
  Expansion& expansion_;
  Pickle pickle_;
  const ReadStorage& read_storage_;
  Archive archive_;
  std::unordered_map<std::string, OwnedBytes> storages_;
  std::map<View, std::string> views_;  ///< path of each
  std::vector<std::string> left_out_;
  std::vector<const PickleValue*> containers_;  ///< the present one and those that contain it
  struct {
    std::string path, description;
  } unsupported_;  ///< the first tensor of a type that DType lacks
  std::size_t visited_ = 0;
  std::size_t too_deep_ = 0;  ///< objects that are left out because they are nested too deeply
};

Pickle parse(const ByteSource& source, std::span<const std::byte> bytes) {
  try {
    return parse_pickle(bytes);
  } catch (const CheckpointError& error) {
    source.refuse("data.pkl", error.what(), error.fault());
  }
}

Archive read_pickled(const ByteSource& source, Expansion& expansion, Pickle pickle, const ReadStorage& read_storage,
                     std::vector<std::string>* left_out) {
  PyTorchReader reader(source, expansion, std::move(pickle), read_storage);
  Archive archive = reader.read();
  if (left_out != nullptr) *left_out = reader.left_out();
  return archive;
}

// --- the format before version 1.6: pickles of a magic number, a version, the system, the values and the keys of the
// storages, then for each key the number of elements and the bytes ---

constexpr std::string_view kLegacyMagic = "119547037146038801333356";
constexpr std::int64_t kLegacyVersion = 1001;
constexpr std::uint64_t kMaxLegacyPickles = std::uint64_t{64} << 20;
constexpr std::uint64_t kCountBytes = 8;

/// The places of the storages in the file, by key.
/// @param begin  the end of the pickles
std::map<std::string, std::uint64_t> legacy_offsets(const ByteSource& source, const Pickle& values, const Pickle& keys,
                                                    std::uint64_t begin) {
  std::map<std::string, const PickleValue*> by_key;
  for (const PickleValue& value : values.values) {
    if (value.kind == Kind::storage) by_key.emplace(value.text, &value);
  }
  const PickleValue& list = keys.values[keys.root];
  if (list.kind != Kind::list) source.refuse("its list of storages is malformed");
  std::map<std::string, std::uint64_t> offsets;
  for (const std::uint32_t item : list.items) {
    const auto found = by_key.find(keys.values[item].text);
    if (found == by_key.end())
      source.refuse("its list of storages has one that no tensor uses, or one of an unsupported type");
    const PickleValue& storage = *found->second;
    const auto bytes = static_cast<std::uint64_t>(storage.integer);
    const std::int64_t count = load<std::int64_t>(source.read(begin, kCountBytes).bytes, 0);
    if (count != storage.integer / static_cast<std::int64_t>(size_of(storage.dtype))) {
      source.refuse("its storage " + storage.text + " has another number of elements than its tensors expect");
    }
    if (!offsets.emplace(storage.text, begin + kCountBytes).second) source.refuse("it lists a storage twice");
    begin += kCountBytes + bytes;
    if (begin > source.size() || bytes > source.size()) source.refuse("it is truncated: it ends inside a storage");
  }
  if (begin != source.size()) source.refuse("after its last storage there are bytes that belong to no tensor");
  return offsets;
}

}  // namespace

bool is_pytorch(const Zip& zip) { return !folder_of(zip).empty(); }

Archive read_pytorch(const Zip& zip, std::vector<std::string>* left_out) {
  const ByteSource& source = zip.source();
  const std::string folder = folder_of(zip);
  if (folder.empty())
    source.refuse("it is a zip archive without the record data.pkl of a PyTorch file", CheckpointFault::other_kind);
  if (zip.find(folder + "/constants.pkl") != nullptr) {
    source.refuse("it is a TorchScript program: in Python, call torch.save(torch.jit.load(...).state_dict())",
                  CheckpointFault::other_kind);
  }
  Expansion expansion(source);
  const auto read_record = [&](const ZipRecord& record, const std::string& object) {
    if (record.is_deflated)
      source.refuse(object, "its record is compressed, but PyTorch files are not compressed; this is not allowed");
    return zip.read(record, object, expansion);
  };
  if (const ZipRecord* record = zip.find(folder + "/byteorder")) {
    const OwnedBytes block = read_record(*record, "byteorder");
    const std::string_view order(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size());
    if (order != "little") source.refuse("its bytes are in big-endian order: save it again on another machine");
  }
  const auto read_storage = [&](const PickleValue& storage, const std::string& object) {
    const std::string& key = storage.text;
    const ZipRecord* record = zip.find(folder + "/data/" + key);
    if (record == nullptr || key.find('/') != std::string::npos) {
      source.refuse(object, "the record with its data is missing: " + quoted("data", key));
    }
    if (record->bytes != static_cast<std::uint64_t>(storage.integer)) {
      source.refuse(object, "its storage should have " + std::to_string(storage.integer) +
                                " bytes, but its record has " + std::to_string(record->bytes));
    }
    return read_record(*record, object);
  };
  const OwnedBytes pickle = read_record(*zip.find(folder + std::string(kPickle)), "data.pkl");
  Archive archive = read_pickled(source, expansion, parse(source, pickle.bytes), read_storage, left_out);
  read_metadata(zip, folder + "/extra/metadata.json", archive);
  return archive;
}

Archive read_legacy_pytorch(const ByteSource& source, std::vector<std::string>* left_out) {
  const OwnedBytes head = source.read(0, std::min(source.size(), kMaxLegacyPickles));
  std::span<const std::byte> rest = head.bytes;
  const auto next = [&] {
    Pickle pickle = parse(source, rest);
    rest = rest.subspan(pickle.size);
    return pickle;
  };
  const Pickle magic = next();
  if (magic.values[magic.root].text != kLegacyMagic) {
    source.refuse("it is a pickle, but not a file of torch.save: save model.state_dict() with torch.save",
                  CheckpointFault::other_kind);
  }
  const Pickle version = next();
  if (version.values[version.root].integer != kLegacyVersion) source.refuse("it has an unknown version of torch.save");
  const Pickle system = next();
  const std::vector<std::uint32_t>& facts = system.values[system.root].items;
  for (std::size_t i = 0; i + 1 < facts.size(); i += 2) {
    const bool is_order = system.values[facts[i]].text == "little_endian";
    if (is_order && system.values[facts[i + 1]].integer == 0) {
      source.refuse("its bytes are in big-endian order: save it again on another machine");
    }
  }
  Pickle values = next();
  const Pickle keys = next();
  const auto offsets = legacy_offsets(source, values, keys, head.bytes.size() - rest.size());
  const auto read_storage = [&](const PickleValue& storage, const std::string& object) {
    const auto found = offsets.find(storage.text);
    if (found == offsets.end()) source.refuse(object, "the storage with its data is missing");
    return source.read(found->second, static_cast<std::uint64_t>(storage.integer));
  };
  Expansion expansion(source);
  return read_pickled(source, expansion, std::move(values), read_storage, left_out);
}

void gather(std::span<const std::byte> from, const std::vector<std::int64_t>& shape,
            const std::vector<std::int64_t>& strides, std::size_t element_bytes, std::span<std::byte> target) {
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t position = 0;
  for (std::size_t written = 0; written < target.size(); written += element_bytes) {
    std::copy_n(from.begin() + position, element_bytes, target.begin() + static_cast<std::ptrdiff_t>(written));
    for (std::size_t i = shape.size(); i > 0; --i) {  // the next element in row-major order
      position += strides[i - 1];
      if (++index[i - 1] < shape[i - 1]) break;
      position -= strides[i - 1] * shape[i - 1];
      index[i - 1] = 0;
    }
  }
}

}  // namespace lockstep::checkpoints
