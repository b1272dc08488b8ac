// SPDX-License-Identifier: BSD-3-Clause
// Predictions inside a program without MPI, with the model of a run of `trainer` or of another program.
//
//     serve RUN < samples
//
// Reads the numbers of one sample per line and prints, for each sample, its class or the predicted numbers.
#include <lockstep/core/error.hpp>
#include <lockstep/session.hpp>

#include <torch/types.h>

#include <iostream>
#include <iterator>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: serve RUN < samples\n";
    return 2;
  }
  try {
    lockstep::Session session(MPI_COMM_NULL, {std::string("from=") + argv[1], "purpose=predict"});
    std::vector<std::int64_t> shape = session.task().sample_shape;
    shape.insert(shape.begin(), -1);
    std::vector<float> numbers(std::istream_iterator<float>(std::cin), {});
    const at::Tensor input = at::from_blob(numbers.data(), {static_cast<std::int64_t>(numbers.size())}).view(shape);
    for (const auto& [name, values] : session.predict({{"input", input}})) {
      if (name != "classes" && name != "values") continue;
      for (const at::Tensor& row : values.to(at::kDouble).flatten(1 - (values.dim() == 1)).unbind()) {
        for (const at::Tensor& value : row.flatten().unbind()) std::cout << value.item<double>() << ' ';
        std::cout << '\n';
      }
    }
    session.close();
  } catch (const lockstep::Error& error) {
    std::cerr << "serve: " << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
