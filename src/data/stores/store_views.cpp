// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/store_views.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "core/text/text_files.hpp"
#include "data/source/hash.hpp"
#include "data/source/mapped_file.hpp"
#include "data/stores/list_text.hpp"
#include "data/stores/store_chunks.hpp"

namespace lockstep::data {

namespace {

using IndexMap = std::function<std::int64_t(std::int64_t)>;

/// Images of a store under other indices.
class StoreView : public ImageStore, public StoreChunks {
 public:
  /// @param index   the index in the store for each of the `size` indices here
  /// @param digest  the digest of the view for that of the store
  StoreView(const StorePtr& store, std::int64_t size, IndexMap index,
            std::function<std::uint64_t(std::uint64_t)> digest)
      : facts_(store->facts()), store_(store), index_(std::move(index)), digest_(std::move(digest)) {
    facts_.size = size;
    if (facts_.masks) facts_.masks = std::make_shared<StoreView>(facts_.masks, size, index_, digest_);
  }

  const StoreFacts& facts() const override { return facts_; }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override {
    return store_->read(index_(index), buffer);
  }
  ImageTarget target(std::int64_t index) const override { return store_->target(index_(index)); }
  std::string name(std::int64_t index) const override { return store_->name(index_(index)); }
  std::string place(std::int64_t index) const override { return store_->place(index_(index)); }
  std::optional<std::int64_t> chunk_of(std::int64_t index) const override { return chunk_in(*store_, index_(index)); }
  std::uint64_t digest() const override { return digest_(store_->digest()); }

 protected:
  StoreFacts facts_;

 private:
  StorePtr store_;
  IndexMap index_;
  std::function<std::uint64_t(std::uint64_t)> digest_;
};

/// A digest to which numbers are added one by one.
std::uint64_t digest_with(std::uint64_t digest, const std::vector<std::int64_t>& numbers) {
  for (const std::int64_t number : numbers) digest = hash_of({digest, static_cast<std::uint64_t>(number)});
  return digest;
}

/// All images, with other class numbers.
class Renumbered : public StoreView {
 public:
  /// @param order    the ids of the classes in their new order
  /// @param numbers  the new number of each class of the store
  Renumbered(const StorePtr& store, std::vector<std::string> order, const std::vector<std::int64_t>& numbers)
      : StoreView(
            store, store->size(), [](std::int64_t index) { return index; },
            [numbers](std::uint64_t digest) { return digest_with(digest, numbers); }),
        numbers_(numbers) {
    facts_.classes = std::ssize(order);
    facts_.class_names = std::move(order);
  }

  ImageTarget target(std::int64_t index) const override {
    ImageTarget target = StoreView::target(index);
    for (std::int64_t& label : target.classes) label = numbers_.at(static_cast<std::size_t>(label));
    return target;
  }

 private:
  std::vector<std::int64_t> numbers_;
};

std::set<std::string> listed_names(const std::string& path) {
  const MappedFile file(path, "data.exclude");
  const ListLines lines(
      ListText(plain_text({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}), path),
      {.target = ListTarget::none});
  file.check();
  std::set<std::string> names;
  for (std::int64_t i = 0; i < lines.size(); ++i) {
    const std::string line(lines.line(i).path);
    names.insert(line);
    const std::size_t blank = line.find_last_of(" \t");  // "path label"
    if (blank != std::string::npos) names.insert(line.substr(0, blank));
  }
  return names;
}

/// The images at positions [begin, begin + count) of a keyed permutation of a store. Needs no memory per image.
StorePtr permuted_part(const StorePtr& store, std::uint64_t key, std::int64_t begin, std::int64_t count) {
  const random::Permutation order(static_cast<std::uint64_t>(store->size()), key);
  return std::make_shared<StoreView>(
      store, count,
      [order, begin](std::int64_t index) {
        return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(begin + index)));
      },
      [=](std::uint64_t digest) {
        return hash_of({digest, key, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(count)});
      });
}

}  // namespace

ImageSplits divided(const StorePtr& store, double fraction, std::uint64_t key) {
  const std::int64_t size = store->size();
  const auto val = static_cast<std::int64_t>(std::floor(static_cast<double>(size) * fraction));
  if (val == 0) return {.train = store};
  if (val == size) throw DataError("no training samples remain after data.val_fraction; lower it");
  return {.train = permuted_part(store, key, 0, size - val), .val = permuted_part(store, key, size - val, val)};
}

StorePtr with_class_order(StorePtr store, const std::vector<std::string>& order,
                          const std::vector<std::string>& names) {
  const std::vector<std::string> ids = store->facts().class_names;
  if (names == order) return store;
  std::vector<std::string> new_ids = order;
  std::vector<std::int64_t> numbers;
  for (std::size_t c = 0; c < names.size(); ++c) {
    const auto found = std::find(order.begin(), order.end(), names[c]);
    if (found == order.end()) {
      throw DataError("the class '" + names[c] + "' of the data is not among the " + std::to_string(order.size()) +
                      " classes of the model; rename its folder, or set data.unlabeled=true to ignore the classes");
    }
    numbers.push_back(found - order.begin());
    new_ids[static_cast<std::size_t>(numbers.back())] = ids[c];
  }
  return std::make_shared<Renumbered>(store, std::move(new_ids), numbers);
}

StorePtr without_listed(StorePtr store, const std::string& path, std::int64_t& found) {
  const std::set<std::string> names = listed_names(path);
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < store->size(); ++i) {
    if (!names.contains(store->name(i))) kept.push_back(i);
  }
  const auto count = static_cast<std::int64_t>(kept.size());
  found += store->size() - count;
  if (count == store->size()) return store;
  if (count == 0) throw DataError(path, "names all samples of a split; none remain for data.exclude");
  const auto indices = std::make_shared<const std::vector<std::int64_t>>(std::move(kept));
  return std::make_shared<StoreView>(
      store, count, [indices](std::int64_t index) { return indices->at(static_cast<std::size_t>(index)); },
      [indices](std::uint64_t digest) { return digest_with(digest, *indices); });
}

}  // namespace lockstep::data
