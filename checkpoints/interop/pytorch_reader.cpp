// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "checkpoints/format/limits.hpp"
#include "checkpoints/interop/pickle.hpp"
#include "checkpoints/interop/pytorch.hpp"

namespace lockstep::checkpoints {

namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kPickle = "/data.pkl";

/// The folder that all records lie in; "" when there is none such.
std::string folder_of(const Zip& zip) {
  for (const ZipRecord& record : zip.records()) {
    if (!record.name.ends_with(kPickle)) continue;
    const std::string folder = record.name.substr(0, record.name.size() - kPickle.size());
    if (folder.find('/') == std::string::npos) return folder;
  }
  return "";
}

class PyTorchReader {
 public:
  explicit PyTorchReader(const Zip& zip)
      : zip_(zip), source_(zip.source()), expansion_(zip.source()), folder_(folder_of(zip)) {
    archive_.set_origin(source_.path());
  }

  Archive read() {
    if (folder_.empty())
      source_.refuse("it is a zip archive without the record data.pkl of a PyTorch file", CheckpointFault::other_kind);
    if (zip_.find(folder_ + "/constants.pkl") != nullptr) {
      source_.refuse("it is a TorchScript program: in Python, call torch.save(torch.jit.load(...).state_dict())",
                     CheckpointFault::other_kind);
    }
    require_little_endian();
    pickle_ = parse(read_stored(*zip_.find(folder_ + std::string(kPickle)), "data.pkl"));
    const PickleValue& root = pickle_.values[pickle_.root];
    if (root.kind == Kind::tensor) {
      put_tensor(root, "/tensor");
    } else if (root.kind == Kind::map || root.kind == Kind::list || root.kind == Kind::tuple) {
      put_children(root, "", 0);
    } else {
      source_.refuse("data.pkl", "it contains no map, list or tensor");
    }
    read_metadata(zip_, folder_ + "/extra/metadata.json", archive_);
    return std::move(archive_);
  }

 private:
  Pickle parse(const Block& block) const {
    try {
      return parse_pickle(block.bytes);
    } catch (const CheckpointError& error) {
      source_.refuse("data.pkl", error.what(), error.fault());
    }
  }

  Block read_stored(const ZipRecord& record, const std::string& object) {
    if (record.is_deflated)
      source_.refuse(object, "its record is compressed, but PyTorch files are not compressed; this is not allowed");
    return zip_.read(record, object, expansion_);
  }

  void require_little_endian() {
    const ZipRecord* record = zip_.find(folder_ + "/byteorder");
    if (record == nullptr) return;
    const Block block = read_stored(*record, "byteorder");
    const std::string_view order(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size());
    if (order != "little") source_.refuse("its bytes are in big-endian order: save it again on another machine");
  }

  // --- the tree ---

  /// @param path  of the map or list; "" for the root
  void put_children(const PickleValue& parent, const std::string& path, std::size_t depth) {
    if (depth >= kMaxDepth)
      source_.refuse(path.substr(0, 200) + "...", "it is nested too deeply, or in a cycle", CheckpointFault::refused);
    if (!path.empty()) archive_.add_group(path);
    const bool is_map = parent.kind == Kind::map;
    for (std::size_t i = 0; i < parent.items.size(); i += is_map ? 2 : 1) {
      if (++visited_ > kMaxObjects)
        source_.refuse("data.pkl", "it contains more than a million entries", CheckpointFault::refused);
      const std::string name = is_map ? key_of(pickle_.values[parent.items[i]]) : std::to_string(i);
      put_child(pickle_.values[parent.items[is_map ? i + 1 : i]], path, name, depth);
    }
  }

  std::string key_of(const PickleValue& key) const {
    if (key.kind == Kind::text) return key.text;
    if (key.kind == Kind::integer) return std::to_string(key.integer);
    source_.refuse("data.pkl", "a key of a map is neither a text nor an integer");
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
        return set(value.text);
      case Kind::bytes:
        return put_array(source_, archive_, child, text_array(value.text));
      case Kind::tensor:
        return put_tensor(value, child);
      case Kind::list:
      case Kind::tuple:
      case Kind::map:
        if (archive_.has(child)) source_.refuse(child, "the name is used twice");
        return put_children(value, child, depth + 1);
      case Kind::name:
      case Kind::storage:
        source_.refuse(child, "it is a class or a storage, not data");
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
    const Block& storage = storage_of(pickle_.values[tensor.storage], path);
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

  const Block& storage_of(const PickleValue& storage, const std::string& path) {
    const std::string& key = storage.text;
    const ZipRecord* record = zip_.find(folder_ + "/data/" + key);
    if (record == nullptr || key.find('/') != std::string::npos) {
      source_.refuse(path, "the record with its data is missing: " + quoted("data", key));
    }
    if (record->bytes != static_cast<std::uint64_t>(storage.integer)) {
      source_.refuse(path, "its storage should have " + std::to_string(storage.integer) +
                               " bytes, but its record has " + std::to_string(record->bytes));
    }
    const auto known = storages_.find(key);
    if (known != storages_.end()) return known->second;
    return storages_.emplace(key, read_stored(*record, path)).first->second;
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

  /// What makes two tensors one: storage, type, first element, shape and strides.
  using View = std::tuple<std::string, DType, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;

  const Zip& zip_;
  const Source& source_;
  Expansion expansion_;
  std::string folder_;
  Pickle pickle_;
  Archive archive_;
  std::unordered_map<std::string, Block> storages_;
  std::map<View, std::string> views_;  ///< path of each
  std::size_t visited_ = 0;
};

}  // namespace

bool is_pytorch(const Zip& zip) { return !folder_of(zip).empty(); }

Archive read_pytorch(const Zip& zip) { return PyTorchReader(zip).read(); }

void gather(std::span<const std::byte> from, const std::vector<std::int64_t>& shape,
            const std::vector<std::int64_t>& strides, std::size_t element_bytes, std::span<std::byte> to) {
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t at = 0;
  for (std::size_t written = 0; written < to.size(); written += element_bytes) {
    std::copy_n(from.begin() + at, element_bytes, to.begin() + static_cast<std::ptrdiff_t>(written));
    for (std::size_t i = shape.size(); i > 0; --i) {  // the next element in row-major order
      at += strides[i - 1];
      if (++index[i - 1] < shape[i - 1]) break;
      at -= strides[i - 1] * shape[i - 1];
      index[i - 1] = 0;
    }
  }
}

}  // namespace lockstep::checkpoints
