// SPDX-License-Identifier: BSD-3-Clause
// Files of one data set that say different things about their numbers.
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>
#include <hdf5.h>

#include <string>
#include <vector>

#include "checkpoints/format/hdf5.hpp"
#include "data/source/climatology.hpp"
#include "files.hpp"
#include "support/folders.hpp"
#include "support/npy.hpp"

namespace lockstep::data {
namespace field_agreement_test {

using checkpoints::Handle;

/// An array of an HDF5 file.
struct Stored {
  std::string name;
  std::vector<hsize_t> shape;
  std::vector<float> values;
  std::vector<std::string> axes = {};  ///< names; empty = none
  std::string units = {};              ///< empty = none
  double scale = 0;                    ///< scale_factor; 0 = none
};

void write_text(hid_t object, const char* name, const std::vector<std::string>& texts) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "type");
  H5Tset_size(type.id(), H5T_VARIABLE);
  const hsize_t count = texts.size();
  const Handle space(texts.size() == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), H5Sclose,
                     "space");
  const Handle attribute(H5Acreate2(object, name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "text");
  std::vector<const char*> places;
  for (const std::string& text : texts) places.push_back(text.c_str());
  H5Awrite(attribute.id(), type.id(), places.data());
}

std::string write_file(const std::string& path, const std::vector<Stored>& arrays) {
  const checkpoints::HdfSession session;
  const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "file");
  const Handle with_groups(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "list");
  H5Pset_create_intermediate_group(with_groups.id(), 1);
  for (const Stored& array : arrays) {
    const Handle space(H5Screate_simple(static_cast<int>(array.shape.size()), array.shape.data(), nullptr), H5Sclose,
                       "space");
    const Handle set(H5Dcreate2(file.id(), array.name.c_str(), H5T_IEEE_F32LE, space.id(), with_groups.id(),
                                H5P_DEFAULT, H5P_DEFAULT),
                     H5Dclose, "set");
    H5Dwrite(set.id(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data());
    if (!array.axes.empty()) write_text(set.id(), "DIMENSION_LABELS", array.axes);
    if (!array.units.empty()) write_text(set.id(), "units", {array.units});
    if (array.scale == 0) continue;
    const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, "scalar");
    const Handle scale(H5Acreate2(set.id(), "scale_factor", H5T_IEEE_F64LE, scalar.id(), H5P_DEFAULT, H5P_DEFAULT),
                       H5Aclose, "scale");
    H5Awrite(scale.id(), H5T_NATIVE_DOUBLE, &array.scale);
  }
  return path;
}

/// Four steps of fields of 2 x 3 points, which count up.
std::vector<Stored> maps(const std::vector<float>& latitudes, const std::string& units = "K") {
  std::vector<float> values(24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return {{"t", {4, 2, 3}, values, {"time", "lat", "lon"}, units},
          {"lat", {2}, latitudes, {"lat"}, "degrees_north"},
          {"lon", {3}, {0, 1, 2}, {"lon"}, "degrees_east"}};
}

const std::vector<Stored> kTurned = {{"h", {3, 2}, {0, 10, 1, 11, 2, 12}, {"lon", "lat"}}};

class FieldAgreementTest : public ::testing::Test {
 protected:
  Splits open(std::map<std::string, std::string> keys) const {
    keys.insert({{"variables", "t"}, {"normalize", "none"}, {"val_fraction", "0"}});
    return open_fields(keys);
  }
  std::string maps_at(const std::vector<float>& latitudes, const std::string& units = "K") const {
    return write_file(folder_ / "maps.h5", maps(latitudes, units));
  }

  TemporaryFolder folder_;
};

TEST_F(FieldAgreementTest, StaticFieldsHaveTheOrderOfTheNamesOfTheirAxes) {
  const std::string statics = write_file(folder_ / "static.h5", kTurned);
  const Splits splits = open({{"path", maps_at({10, 20})}, {"static", statics + ":h"}});
  EXPECT_EQ(values_of<float>(get(*splits.train, {0}).input()[0][1]), (std::vector<float>{0, 1, 2, 10, 11, 12}));
  std::vector<Stored> many = {{"h", {2, 2, 3}, std::vector<float>(12), {"time", "lat", "lon"}}};
  const std::string steps = write_file(folder_ / "steps.h5", many);
  EXPECT_EQ(sentence_of<DataError>([&] {
              open({{"path", folder_ / "maps.h5"}, {"static", steps + ":h"}});
            }),
            steps +
                ": the array 'h' has 2 steps or trajectories, but a static field has one; choose it, as in "
                "h[time#0]");
}

TEST_F(FieldAgreementTest, ClimatologiesHaveTheOrderOfTheNamesOfTheirAxes) {
  const Splits splits = open({{"path", maps_at({10, 20})}});
  const std::string file = write_file(folder_ / "climatology.h5", kTurned);
  const auto fields = dynamic_cast<const ClimatologyDataset&>(*splits.train).with_climatology({file + ":h", "key"});
  EXPECT_EQ(values_of<float>(get(*fields, {0}).tensor("climatology")), (std::vector<float>{0, 1, 2, 10, 11, 12}));
}

TEST_F(FieldAgreementTest, AnAxisThatRunsTheOtherWayIsAnError) {
  const std::string path = maps_at({10, 20});
  const std::string other = write_file(folder_ / "other.h5", maps({20, 10}));
  const std::string sentence = other + ": the coordinates of its axis lat run the other way than in " + path +
                               "; turn the fields of one of the files around";
  EXPECT_EQ(sentence_of<DataError>([&] { open({{"path", path}, {"val_path", other}}); }), sentence);
  EXPECT_EQ(sentence_of<DataError>([&] { open({{"path", path + "," + other}}); }), sentence);
}

TEST_F(FieldAgreementTest, OtherCoordinatesAndUnitsAreRemarks) {
  const std::string path = maps_at({10, 20});
  const std::string other = write_file(folder_ / "other.h5", maps({30, 40}, "degC"));
  EXPECT_EQ(open({{"path", path + "," + other}}).notes,
            (std::vector<std::string>{other + ": the axis lat has other coordinates than in " + path,
                                      other + ": the array 't' has the unit degC, but K in " + path}));
  EXPECT_TRUE(open({{"path", path + "," + write_file(folder_ / "same.h5", maps({10, 20}))}}).notes.empty());
}

TEST_F(FieldAgreementTest, EachGroupHasItsOwnPacking) {
  const std::vector<float> values = {0, 1, 2, 3};
  const std::string path = write_file(folder_ / "groups.h5",
                                      {{"0/data", {4, 1}, values, {}, "", 1}, {"1/data", {4, 1}, values, {}, "", 10}});
  const Splits splits = open({{"path", path}, {"variables", "*/data"}, {"layout", "tc"}});
  ASSERT_EQ(splits.train->size(), 6);
  EXPECT_EQ(values_of<float>(get(*splits.train, {1, 4}).input()), (std::vector<float>{1, 10}));
}

TEST_F(FieldAgreementTest, EqualNamesGetTheirGroups) {
  const std::vector<float> values = {0, 1, 2, 3};
  const std::string path = write_file(folder_ / "groups.h5", {{"a/T", {4, 1}, values}, {"b/T", {4, 1}, values}});
  const Splits splits = open({{"path", path}, {"variables", "a/T,b/T"}, {"layout", "tx"}});
  EXPECT_EQ(splits.train->task().fields.channels, (std::vector<std::string>{"a/T", "b/T"}));
}

TEST_F(FieldAgreementTest, TimesOfASimulationHaveNoDate) {
  std::vector<Stored> arrays = maps({10, 20});
  arrays.push_back({"time", {4}, {0, 0.5, 3, 4}, {"time"}, "s"});
  EXPECT_EQ(open({{"path", write_file(folder_ / "simulation.h5", arrays)}}).train->size(), 3);
}

TEST_F(FieldAgreementTest, AnAxisWithoutPointsIsNamed) {
  const std::string path = write_file(folder_ / "empty.h5", {{"t", {4, 0}, {}, {"time", "lat"}}});
  EXPECT_EQ(sentence_of<DataError>([&] {
              open({{"path", path}});
            }),
            path + ": the array 't' has no points along its axis lat");
}

}  // namespace field_agreement_test
}  // namespace lockstep::data
