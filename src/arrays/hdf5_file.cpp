// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/hdf5_file.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "arrays/chunk_filters.hpp"
#include "arrays/chunks.hpp"
#include "arrays/hdf5_storage.hpp"
#include "arrays/hdf5_types.hpp"
#include "core/text/text.hpp"

namespace lockstep::arrays {

namespace {

using checkpoints::checked;
using checkpoints::Handle;
using checkpoints::HdfSession;

constexpr std::size_t kMaxNames = 1'000'000;
constexpr std::size_t kMaxOpenSets = 16;  // each has a cache of chunks

// --- names ---

/// The identity of an object: a file may have several names for it.
using ObjectPlace = std::pair<unsigned long, haddr_t>;

std::vector<std::string> links_in(hid_t group) {
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* data) -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  checked(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Literate");
  return names;
}

/// Collects the paths of all arrays. A group that has several names is entered once.
class NameCollector {
 public:
  explicit NameCollector(hid_t file) : file_(file) {}

  std::vector<std::string> collect() {
    groups_ = {"/"};
    while (!groups_.empty()) {
      const std::string path = std::exchange(groups_.back(), "");
      groups_.pop_back();
      enter(path);
    }
    std::ranges::sort(names_);
    return std::move(names_);
  }

 private:
  void enter(const std::string& path) {
    const Handle group(H5Gopen2(file_, path.c_str(), H5P_DEFAULT), H5Gclose, "H5Gopen2");
    for (const std::string& name : links_in(group.id())) {
      add(group.id(), name, path == "/" ? name : path + "/" + name);
      if (names_.size() + groups_.size() > kMaxNames) throw DataError("it has more than a million objects");
    }
  }

  void add(hid_t group, const std::string& name, const std::string& path) {
    H5O_info_t info{};
    const bool is_there = H5Oget_info_by_name2(group, name.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0;
    if (!is_there || info.type == H5O_TYPE_DATASET) {  // a link that leads nowhere is an array that cannot be read
      names_.push_back(path);
    } else if (info.type == H5O_TYPE_GROUP && entered_.insert({info.fileno, info.addr}).second) {
      groups_.push_back(path);
    }
  }

  hid_t file_;
  std::vector<std::string> groups_;  ///< groups to be entered
  std::set<ObjectPlace> entered_;
  std::vector<std::string> names_;
};

// --- why an object cannot be opened ---

/// "a link to 'x' in file y"; "" of an ordinary link.
std::string target_of_link(hid_t file, const std::string& path) {
  H5L_info_t info{};
  if (H5Lget_info(file, path.c_str(), &info, H5P_DEFAULT) < 0 || info.type == H5L_TYPE_HARD) return "";
  std::vector<char> value(info.u.val_size + 1, '\0');
  if (H5Lget_val(file, path.c_str(), value.data(), info.u.val_size, H5P_DEFAULT) < 0) return "";
  if (info.type == H5L_TYPE_SOFT) return "a link to '" + utf8_text(value.data()) + "'";
  const char *target_file = "", *target = "";
  const bool is_external = info.type == H5L_TYPE_EXTERNAL &&
                           H5Lunpack_elink_val(value.data(), info.u.val_size, nullptr, &target_file, &target) >= 0;
  if (!is_external) return "a link of an unknown kind";
  return "a link to '" + utf8_text(target) + "' in the file '" + utf8_text(target_file) + "'";
}

/// Follows a path part by part. "" = each part is there.
std::string fault_of_path(hid_t file, const std::string& path) {
  for (std::size_t end = 0; end < path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string part = path.substr(0, end);
    if (H5Lexists(file, part.c_str(), H5P_DEFAULT) <= 0) return "missing";
    if (H5Oexists_by_name(file, part.c_str(), H5P_DEFAULT) > 0) continue;
    const std::string target = target_of_link(file, part);
    if (!target.empty()) return "it is " + target + ", which cannot be opened";
  }
  return "";
}

std::string plain_path(const std::string& path) {
  const std::size_t begin = std::min(path.find_first_not_of('/'), path.size());
  const std::size_t end = path.find_last_not_of('/');
  return end == std::string::npos ? "" : path.substr(begin, end + 1 - begin);
}

std::vector<std::int64_t> shape_of_set(hid_t set) {
  const Handle space(H5Dget_space(set), H5Sclose, "H5Dget_space");
  if (H5Sget_simple_extent_type(space.id()) == H5S_NULL) throw DataError("it has no elements (kind null)");
  return checkpoints::shape_of(set);
}

/// @param reason  that of HDF5
std::string fault_of_file(const std::string& reason) {
  const bool is_locked = reason.find("to lock") != std::string::npos;  // others contain "block"
  if (!is_locked) return "it is damaged or truncated; replace it (" + reason + ")";
  return reason + "; a program is writing it, or its file system has no locks: then set HDF5_USE_FILE_LOCKING=FALSE";
}

// --- the file ---

/// Everything that is known of an array.
struct KnownArray {
  ArrayInfo info;
  /// Position in the file, if the elements can be read without HDF5.
  std::optional<std::uint64_t> offset;
  /// The same of arrays in chunks, but for their bytes in the file.
  std::optional<ChunkedArray> chunks;
  std::vector<SetFilter> filters;
  std::uint64_t chunk_bytes = 0;  ///< size without filters
};

class Hdf5File final : public ArrayFile {
 public:
  explicit Hdf5File(std::shared_ptr<const InputFile> bytes) : bytes_(std::move(bytes)) {
    const HdfSession session;
    register_filters();
    try {
      Handle file = open_to_read(path());
      bytes_->require_same_at_path();
      file_.emplace(std::move(file));
    } catch (const CheckpointError& error) {
      throw DataError(path(), fault_of_file(error.what()));
    }
  }
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  ~Hdf5File() override {
    const HdfSession session;
    open_sets_.clear();
    file_.reset();
    chunk_cache().forget(number_);
  }

  const std::string& path() const override { return bytes_->path(); }

  std::vector<std::string> names() const override {
    const HdfSession session;
    return with_place(path(), "", [&] { return NameCollector(file_->id()).collect(); });
  }

  ArrayInfo find(const std::string& name) const override {
    std::shared_ptr<const KnownArray> known;
    bytes_->while_unchanged([&] { known = find_known(plain_path(name)); });
    return known->info;
  }

  std::optional<std::uint64_t> stored_bytes(const ArrayInfo& array) const override {
    if (array.storage.layout == "virtual" || array.storage.layout == "external") return std::nullopt;
    const HdfSession session;
    const std::string name = plain_path(array.path);
    return with_place(path(), called(name) + ": ", [&] { return H5Dget_storage_size(open_set(name).set.id()); });
  }

  Attributes attributes_of(const std::string& group) const override {
    const HdfSession session;
    const std::string name = plain_path(group);
    return with_place(path(), name.empty() ? "" : "group '" + utf8_text(name) + "': ", [&] {
      const hid_t id = H5Oopen(file_->id(), name.empty() ? "/" : name.c_str(), H5P_DEFAULT);
      if (id < 0) throw DataError("it does not exist");
      const Handle object(id, H5Oclose, "H5Oopen");
      return attributes_of_object(object.id());
    });
  }

  std::vector<std::string> texts(const std::string& name) const override {
    const HdfSession session;
    const std::string path_in_file = plain_path(name);
    return with_place(path(), called(path_in_file) + ": ", [&]() -> std::vector<std::string> {
      H5O_info_t info{};
      const bool is_array =
          !path_in_file.empty() &&
          H5Oget_info_by_name2(file_->id(), path_in_file.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
          info.type == H5O_TYPE_DATASET;
      return is_array ? texts_of_set(open_set(path_in_file).set.id()) : std::vector<std::string>();
    });
  }

  void read(const ArrayInfo& array, const Slab& slab, std::span<std::byte> out) const override {
    bytes_->while_unchanged([&] {
      const auto known = find_known(plain_path(array.path));
      require_inside(path(), known->info, slab, out.size());
      if (!out.empty()) read_known(*known, slab, out);
    });
  }

 private:
  void read_known(const KnownArray& known, const Slab& slab, std::span<std::byte> out) const {
    if (known.chunks) {
      read_chunks([&](const auto& first) { return chunk_at(known, first); }, *known.chunks, slab, out);
      chunk_cache().count_used(out.size());
    } else if (known.offset) {
      const PlainArray place{.offset = *known.offset, .shape = known.info.shape, .bytes = known.info.type.bytes};
      const auto read_file = [&](std::uint64_t offset, std::span<std::byte> part) { bytes_->read(offset, part); };
      read_plain(read_file, place, slab, out);
    } else {
      return read_by_library(known.info, slab, out);
    }
    if (is_foreign_order(known.info.type)) reverse_elements(out, known.info.type.bytes);
  }

  /// A data set that stays open.
  struct OpenSet {
    std::string name;
    Handle set;
    bool is_checked = false;  ///< the sources of a virtual data set have been opened
  };

  std::shared_ptr<const KnownArray> find_known(const std::string& name) const {
    {
      const std::lock_guard hold(mutex_);
      const auto found = known_.find(name);
      if (found != known_.end()) return found->second;
    }
    const HdfSession session;  // never taken while `mutex_` is held
    auto described = std::make_shared<const KnownArray>(
        with_place(path(), called(name) + ": ", [&] { return describe(name, open_set(name).set.id()); }));
    const std::lock_guard hold(mutex_);
    return known_.try_emplace(name, std::move(described)).first->second;
  }

  KnownArray describe(const std::string& name, hid_t set) const {
    KnownArray known;
    ArrayInfo& info = known.info;
    info.path = name;
    info.shape = shape_of_set(set);
    const Handle type(H5Dget_type(set), H5Tclose, "H5Dget_type");
    info.type = number_type_of(type.id());
    const auto bytes = bytes_of(info.shape, info.type.bytes);
    if (!bytes) throw DataError("its shape " + shape_text(info.shape) + " is beyond 2^63 bytes");
    SetStorage storage = storage_of(set, info.type);
    info.storage = std::move(storage.info);
    info.attributes = attributes_of_object(set);
    const bool is_here = is_in_this_file(set);
    ReferenceNames others;
    info.axes = axis_names(set, info, last_part(name), is_here ? references_ : others);
    if (storage.offset && is_here) known.offset = inside_of_file(*storage.offset, *bytes);
    if (!storage.fill.empty() && is_here) {
      known.chunks = {.shape = info.shape, .chunk = info.storage.chunk, .fill = std::move(storage.fill)};
      known.filters = std::move(storage.filters);
      known.chunk_bytes = chunk_bytes_of(info.storage.chunk, info.type);
    }
    return known;
  }

  bool is_in_this_file(hid_t set) const {
    H5O_info_t root{}, info{};
    checked(H5Oget_info2(file_->id(), &root, H5O_INFO_BASIC), "H5Oget_info2");
    checked(H5Oget_info2(set, &info, H5O_INFO_BASIC), "H5Oget_info2");
    return root.fileno == info.fileno;
  }

  std::uint64_t inside_of_file(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset <= bytes_->size() && bytes <= bytes_->size() - offset) return offset;
    throw DataError("the file is truncated: it has " + std::to_string(bytes_->size()) + " bytes, but " +
                    std::to_string(bytes) + " from byte " + std::to_string(offset) + " on are needed");
  }

  /// The data set, which stays open until others have been used more recently.
  OpenSet& open_set(const std::string& name) const {
    const auto found = std::ranges::find(open_sets_, name, &OpenSet::name);
    if (found != open_sets_.end()) {
      open_sets_.splice(open_sets_.begin(), open_sets_, found);
      return open_sets_.front();
    }
    std::optional<Handle> set = name.empty() ? std::nullopt : open_set_to_read(file_->id(), name);
    if (!set) refuse_to_open(name);
    open_sets_.push_front({name, std::move(*set)});
    if (open_sets_.size() > kMaxOpenSets) open_sets_.pop_back();
    return open_sets_.front();
  }

  [[noreturn]] void refuse_to_open(const std::string& name) const {
    const std::string fault = name.empty() ? "missing" : fault_of_path(file_->id(), name);
    if (fault == "missing") throw DataError(path(), no_such_array(name, NameCollector(file_->id()).collect()));
    if (!fault.empty()) throw DataError(fault);
    const Handle object(H5Oopen(file_->id(), name.c_str(), H5P_DEFAULT), H5Oclose, "H5Oopen");
    if (H5Iget_type(object.id()) != H5I_DATASET) {
      throw DataError("it is not an array; name one of those in the file, such as " + utf8_text(name) + "/NAME");
    }
    checkpoints::throw_hdf("H5Dopen2");
  }

  /// A chunk, from the cache or from the file. Only its bytes are read with HDF5, by one thread at a time.
  Chunk chunk_at(const KnownArray& known, const std::vector<std::int64_t>& first) const {
    const ChunkKey key{.file = number_, .array = known.info.path, .first = first};
    return chunk_cache().get(key, [&] { return make_chunk(known, first); });
  }

  Chunk make_chunk(const KnownArray& known, const std::vector<std::int64_t>& first) const {
    const std::string object =
        called(known.info.path) + ": its elements from " + place_of(known.info, first) + " on cannot be read: ";
    return with_place(path(), object, [&]() -> Chunk {
      std::uint32_t skipped = 0;
      std::vector<std::byte> stored = stored_chunk(known.info.path, first, skipped);
      if (stored.empty()) return nothing_at(known, first);
      return std::make_shared<const std::vector<std::byte>>(
          undo_filters(known.filters, skipped, std::move(stored), known.chunk_bytes));
    });
  }

  /// @return  empty if there is no such chunk
  std::vector<std::byte> stored_chunk(const std::string& name, const std::vector<std::int64_t>& first,
                                      std::uint32_t& skipped) const {
    const HdfSession session;
    const hid_t set = open_set(name).set.id();
    const std::vector<hsize_t> offset(first.begin(), first.end());
    hsize_t bytes = 0;
    const bool is_there = H5Dget_chunk_storage_size(set, offset.data(), &bytes) >= 0 && bytes > 0;
    if (!is_there) return {};
    if (bytes > bytes_->size()) throw DataError("its chunk states more bytes than the file has; it is damaged");
    std::vector<std::byte> stored(bytes);
    checked(H5Dread_chunk(set, H5P_DEFAULT, offset.data(), &skipped, stored.data()), "H5Dread_chunk");
    return stored;
  }

  /// HDF5 reports a chunk that was never written as it reports a damaged index. Reading an element tells them apart.
  Chunk nothing_at(const KnownArray& known, const std::vector<std::int64_t>& first) const {
    const std::vector<std::int64_t> ones(first.size(), 1);
    std::vector<std::byte> element(known.info.type.bytes);
    read_by_library(known.info, {.start = first, .count = ones, .step = ones}, element);
    if (is_foreign_order(known.info.type)) reverse_elements(element, element.size());
    if (element != known.chunks->fill) throw DataError("the index of its chunks is damaged");
    return nullptr;
  }

  void read_by_library(const ArrayInfo& array, const Slab& slab, std::span<std::byte> out) const {
    const HdfSession session;
    const std::string object =
        called(array.path) + ": its elements from " + place_of(array, slab.start) + " on cannot be read: ";
    with_place(path(), object, [&] {
      OpenSet& opened = open_set(array.path);
      const hid_t set = opened.set.id();
      if (array.storage.layout == "virtual" && !opened.is_checked) storage_of(set, array.type);
      opened.is_checked = true;
      const Handle type = memory_type(array.type);
      const Handle file_space(H5Dget_space(set), H5Sclose, "H5Dget_space");
      if (checkpoints::shape_of(set) != array.shape) throw DataError("its shape was changed");
      if (!array.shape.empty()) select(file_space.id(), slab);
      const Handle memory_space = memory_space_of(slab);
      checked(H5Dread(set, type.id(), memory_space.id(), file_space.id(), H5P_DEFAULT, out.data()), "H5Dread");
    });
  }

  /// HDF5 copies element by element, at a tenth of the speed, unless both spaces have the same axes.
  static Handle memory_space_of(const Slab& slab) {
    if (slab.count.empty()) return {H5Screate(H5S_SCALAR), H5Sclose, "H5Screate"};
    const std::vector<hsize_t> count(slab.count.begin(), slab.count.end());
    return {H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose, "H5Screate_simple"};
  }

  static void select(hid_t space, const Slab& slab) {
    const std::vector<hsize_t> start(slab.start.begin(), slab.start.end());
    const std::vector<hsize_t> count(slab.count.begin(), slab.count.end());
    const std::vector<hsize_t> step(slab.step.begin(), slab.step.end());
    checked(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), step.data(), count.data(), nullptr),
            "H5Sselect_hyperslab");
  }

  /// "time 4", or "index [3, 4, 0]" if no axis is called time.
  static std::string place_of(const ArrayInfo& array, const std::vector<std::int64_t>& start) {
    if (array.shape.empty()) return "the first";
    for (std::size_t axis = 0; axis < start.size(); ++axis) {
      if (array.axes[axis] == "time") return "time " + std::to_string(start[axis]);
    }
    return "index " + (start.size() == 1 ? std::to_string(start[0]) : shape_text(start));
  }

  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> count = 0;
    return ++count;
  }

  std::shared_ptr<const InputFile> bytes_;
  const std::uint64_t number_ = next_number();  ///< its identity in the cache of chunks
  std::optional<Handle> file_;
  mutable std::list<OpenSet> open_sets_;  ///< the most recently used one first; protected by sessions
  mutable ReferenceNames references_;     ///< protected by sessions
  mutable std::mutex mutex_;              ///< protects `known_`
  mutable std::map<std::string, std::shared_ptr<const KnownArray>> known_;
};

}  // namespace

std::shared_ptr<const ArrayFile> open_hdf5(std::shared_ptr<const InputFile> file) {
  return std::make_shared<const Hdf5File>(std::move(file));
}

}  // namespace lockstep::arrays
