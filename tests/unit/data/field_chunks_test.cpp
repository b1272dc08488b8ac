// SPDX-License-Identifier: BSD-3-Clause
// The chunks of HDF5 files, as the source `fields` knows them.
#include "data/fields/field_chunks.hpp"

#include <lockstep/data/sampler.hpp>
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>
#include <hdf5.h>

#include <string>
#include <vector>

#include "checkpoints/format/hdf5.hpp"
#include "data/fields/field_dataset.hpp"
#include "files.hpp"
#include "support/folders.hpp"

namespace lockstep::data {
namespace field_chunks_test {

class FieldChunksTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

/// The number at trajectory n, step t and point x is 20 n + 2 t + x.
/// @param others  shapes of the chunks of further arrays v, w, ...
void write_chunks(const std::string& path, const std::vector<hsize_t>& chunk,
                  const std::vector<std::vector<hsize_t>>& others = {}) {
  const checkpoints::HdfSession session;
  const checkpoints::Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "file");
  const std::vector<hsize_t> shape = {3, 10, 2};
  const checkpoints::Handle space(H5Screate_simple(3, shape.data(), nullptr), H5Sclose, "space");
  std::vector<float> values(60);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<std::vector<hsize_t>> chunks = others;
  chunks.insert(chunks.begin(), chunk);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const checkpoints::Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "list");
    H5Pset_chunk(list.id(), 3, chunks[i].data());
    H5Pset_deflate(list.id(), 4);
    const std::string name(1, static_cast<char>('u' + i));
    const checkpoints::Handle set(
        H5Dcreate2(file.id(), name.c_str(), H5T_IEEE_F32LE, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose,
        "set");
    H5Dwrite(set.id(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }
}

TEST_F(FieldChunksTest, SamplesKnowTheirChunks) {
  write_chunks(folder_ / "a.h5", {2, 4, 2});
  const Splits splits = open_fields(
      {{"path", folder_ / "a.h5"}, {"variables", "u"}, {"layout", "ntx"}, {"val_fraction", "0"}, {"steps_out", "0"}});
  // Trajectories 0 and 1 have the chunks 0 to 2, and trajectory 2 has 3 to 5. Chunks have 4, 4 and 2 steps.
  const std::vector<std::int64_t> steps = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2};
  std::vector<std::int64_t> expected;
  for (const std::int64_t first : {0, 0, 3}) {
    for (const std::int64_t step : steps) expected.push_back(first + step);
  }
  EXPECT_EQ(chunks_of(*splits.train), expected);

  const ChunkBytes before = chunk_bytes_of(*splits.train);
  const Sampler sampler =
      make_sampler(section({{"sampler", "chunks"}, {"shuffle_chunks", "2"}, {"drop_last", "false"}}),
                   {.dataset = splits.train.get(), .global_batch_size = 5, .seed = 1});
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const auto draws = sampler.draws(0, step, {0, 5});
    const std::vector<float> values = values_of<float>(splits.train->get(draws).input());
    for (std::size_t i = 0; i < draws.size(); ++i) EXPECT_EQ(values[2 * i], static_cast<float>(2 * draws[i].index));
  }
  const ChunkBytes bytes = chunk_bytes_of(*splits.train).since(before);
  EXPECT_EQ(bytes.used, 240);  // 30 samples of 8 bytes
  EXPECT_EQ(bytes.unpacked, 6 * 64) << "each chunk once";
}

TEST_F(FieldChunksTest, ChunksAreThoseOfTheCostliestVariable) {
  write_chunks(folder_ / "a.h5", {1, 2, 2}, {{1, 5, 1}, {1, 1, 2}});
  const auto chunks_with = [&](const std::string& variables, const std::string& targets) {
    return chunks_of(*open_fields({{"path", folder_ / "a.h5"},
                                   {"variables", variables},
                                   {"target_variables", targets},
                                   {"layout", "ntx"},
                                   {"val_fraction", "0"}})
                          .train);
  };
  std::vector<std::int64_t> of_u, of_v;
  for (std::int64_t trajectory = 0; trajectory < 3; ++trajectory) {
    for (std::int64_t step = 0; step < 9; ++step) {
      of_u.push_back(5 * trajectory + step / 2);
      of_v.push_back(2 * trajectory + step / 5);
    }
  }
  EXPECT_EQ(chunks_with("u,w", "u"), of_u);
  EXPECT_EQ(chunks_with("w,u", "u"), of_u);
  EXPECT_EQ(chunks_with("u,v,w", "u"), of_v);
  EXPECT_EQ(chunks_with("u,w", "v"), of_v);
}

TEST_F(FieldChunksTest, ARemarkSaysThatChunksHoldManySamples) {
  write_chunks(folder_ / "a.h5", {1, 4, 2});
  const auto notes_with = [&](const std::string& megabytes, const std::string& sampler) {
    return open_fields({{"path", folder_ / "a.h5"},
                        {"variables", "u"},
                        {"layout", "ntx"},
                        {"sampler", sampler},
                        {"chunk_cache_mb", megabytes}})
        .notes;
  };
  EXPECT_EQ(notes_with("0.0001", "default"),
            (std::vector<std::string>{(folder_ / "a.h5") +
                                      ": a chunk of the array 'u' holds 4 steps, so that a random order unpacks 2.44 "
                                      "times the bytes that samples use: all chunks have 0.000275 MiB, more than "
                                      "data.chunk_cache_mb; set data.sampler=chunks, or data.chunk_cache_mb=1"}))
      << "9 windows of 2 of 10 steps touch 11 chunks";
  EXPECT_EQ(notes_with("0.0001", "chunks"), std::vector<std::string>());
  EXPECT_EQ(notes_with("64", "default"), std::vector<std::string>());
}

TEST_F(FieldChunksTest, TheCostOfChunksCountsThoseThatACropTouches) {
  write_chunks(folder_ / "a.h5", {2, 4, 1});
  const auto cost_with = [&](const std::string& crop) {
    const Splits splits = open_fields(
        {{"path", folder_ / "a.h5"}, {"variables", "u"}, {"layout", "ntx"}, {"crop", crop}, {"val_fraction", "0"}});
    return chunk_cost_of(dynamic_cast<const FieldDataset&>(*splits.train).description());
  };
  // 9 windows of 2 steps touch 11 chunks along time; a chunk has 32 bytes. There are 2 x 3 x 2 chunks.
  const ChunkCost all = cost_with("");
  EXPECT_DOUBLE_EQ(all.unpacked, 2 * 32 * 11 / 9.0);
  EXPECT_EQ(all.used, 16);
  EXPECT_EQ(all.all, 12 * 32);
  const ChunkCost half = cost_with("x:1-2");
  EXPECT_DOUBLE_EQ(half.unpacked, 32 * 11 / 9.0);
  EXPECT_EQ(half.used, 8);
  EXPECT_EQ(half.all, 6 * 32);
}

}  // namespace field_chunks_test
}  // namespace lockstep::data
