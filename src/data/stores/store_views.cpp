// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/store_views.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/text/plain_text.hpp"
#include "data/source/hash.hpp"
#include "data/source/mapped_file.hpp"
#include "data/stores/list_text.hpp"

namespace lockstep::data {

namespace {

class StoreView : public ImageStore {
 public:
  explicit StoreView(StorePtr store) : store_(std::move(store)) {}

  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override { return store_->read(at(index), buffer); }
  TargetKind target_kind() const override { return store_->target_kind(); }
  std::int64_t label(std::int64_t index) const override { return store_->label(at(index)); }
  std::vector<std::int64_t> labels(std::int64_t index) const override { return store_->labels(at(index)); }
  double number(std::int64_t index) const override { return store_->number(at(index)); }
  std::string name(std::int64_t index) const override { return store_->name(at(index)); }
  std::string place(std::int64_t index) const override { return store_->place(at(index)); }
  StoredImage read_mask(std::int64_t index, ReadBuffer& buffer) const override {
    return store_->read_mask(at(index), buffer);
  }
  std::string mask_place(std::int64_t index) const override { return store_->mask_place(at(index)); }
  std::int64_t classes() const override { return store_->classes(); }
  std::vector<std::string> class_names() const override { return store_->class_names(); }
  std::optional<PixelShape> shape() const override { return store_->shape(); }
  void read_ahead(std::int64_t index) const override { store_->read_ahead(at(index)); }

 protected:
  const ImageStore& store() const { return *store_; }
  /// The index in the store.
  virtual std::int64_t at(std::int64_t index) const = 0;

 private:
  StorePtr store_;
};

class PermutedPart : public StoreView {
 public:
  PermutedPart(StorePtr store, std::uint64_t key, std::int64_t begin, std::int64_t count)
      : StoreView(std::move(store)),
        permutation_(static_cast<std::uint64_t>(this->store().size()), key),
        key_(key),
        begin_(begin),
        count_(count) {}

  std::int64_t size() const override { return count_; }
  std::uint64_t digest() const override {
    return hash_of({store().digest(), key_, static_cast<std::uint64_t>(begin_), static_cast<std::uint64_t>(count_)});
  }

 private:
  std::int64_t at(std::int64_t index) const override {
    return static_cast<std::int64_t>(permutation_(static_cast<std::uint64_t>(begin_ + index)));
  }

  random::Permutation permutation_;
  std::uint64_t key_;
  std::int64_t begin_;
  std::int64_t count_;
};

class ChosenPart : public StoreView {
 public:
  ChosenPart(StorePtr store, std::vector<std::int64_t> chosen)
      : StoreView(std::move(store)), chosen_(std::move(chosen)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(chosen_.size()); }
  std::uint64_t digest() const override {
    std::uint64_t hash = store().digest();
    for (const std::int64_t index : chosen_) hash = hash_of({hash, static_cast<std::uint64_t>(index)});
    return hash;
  }

 private:
  std::int64_t at(std::int64_t index) const override { return chosen_.at(static_cast<std::size_t>(index)); }

  std::vector<std::int64_t> chosen_;
};

/// All images, with other class numbers.
class Renumbered : public StoreView {
 public:
  /// @param order    the ids of the classes in their new order
  /// @param numbers  the new number of each class of the store
  Renumbered(StorePtr store, std::vector<std::string> order, std::vector<std::int64_t> numbers)
      : StoreView(std::move(store)), order_(std::move(order)), numbers_(std::move(numbers)) {}

  std::int64_t size() const override { return store().size(); }
  std::int64_t label(std::int64_t index) const override { return number_of(store().label(index)); }
  std::vector<std::int64_t> labels(std::int64_t index) const override {
    std::vector<std::int64_t> labels = store().labels(index);
    for (std::int64_t& label : labels) label = number_of(label);
    return labels;
  }
  std::int64_t classes() const override { return static_cast<std::int64_t>(order_.size()); }
  std::vector<std::string> class_names() const override { return order_; }
  std::uint64_t digest() const override {
    std::uint64_t hash = store().digest();
    for (const std::int64_t number : numbers_) hash = hash_of({hash, static_cast<std::uint64_t>(number)});
    return hash;
  }

 private:
  std::int64_t at(std::int64_t index) const override { return index; }
  std::int64_t number_of(std::int64_t label) const { return numbers_.at(static_cast<std::size_t>(label)); }

  std::vector<std::string> order_;
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

}  // namespace

StoredImage ImageStore::read_mask(std::int64_t index, ReadBuffer&) const {
  throw DataError(place(index), "has no mask; the source of the images does not provide masks");
}

StorePtr permuted_part(StorePtr store, std::uint64_t key, std::int64_t begin, std::int64_t count) {
  return std::make_shared<PermutedPart>(std::move(store), key, begin, count);
}

ImageSplits divided(const StorePtr& store, double fraction, std::uint64_t key) {
  const std::int64_t size = store->size();
  const auto val = static_cast<std::int64_t>(std::floor(static_cast<double>(size) * fraction));
  if (val == 0) return {.train = store};
  if (val == size) throw DataError("no training samples remain after data.val_fraction; lower it");
  return {.train = permuted_part(store, key, 0, size - val), .val = permuted_part(store, key, size - val, val)};
}

StorePtr with_class_order(StorePtr store, const std::vector<std::string>& order,
                          const std::vector<std::string>& names) {
  const std::vector<std::string> ids = store->class_names();
  if (names == order) return store;
  std::vector<std::string> new_ids = order;
  std::vector<std::int64_t> numbers;
  for (std::size_t c = 0; c < names.size(); ++c) {
    const auto found = std::find(order.begin(), order.end(), names[c]);
    if (found == order.end()) {
      throw DataError("the class '" + names[c] + "' of the data is not among the " + std::to_string(order.size()) +
                      " classes of the model; rename its folder, or set data.unlabelled=true to ignore the classes");
    }
    numbers.push_back(found - order.begin());
    new_ids[static_cast<std::size_t>(numbers.back())] = ids[c];
  }
  return std::make_shared<Renumbered>(std::move(store), std::move(new_ids), std::move(numbers));
}

StorePtr chosen_part(StorePtr store, std::vector<std::int64_t> chosen) {
  return std::make_shared<ChosenPart>(std::move(store), std::move(chosen));
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
  return chosen_part(std::move(store), std::move(kept));
}

}  // namespace lockstep::data
