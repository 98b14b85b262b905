#include <cstring>
#include <stdexcept>

#include <ATen/ops/empty.h>

#include <support/golden_torch.hpp>

namespace spillway::test {

namespace {

at::ScalarType scalar_type(const std::string& dtype) {
  if (dtype == "F64") return at::kDouble;
  if (dtype == "F32") return at::kFloat;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "I64") return at::kLong;
  if (dtype == "BOOL") return at::kBool;
  throw std::runtime_error("golden tensor of unknown dtype " + dtype);
}

}  // namespace

at::Tensor tensor(const GoldenFile& file, const std::string& name) {
  const GoldenTensor& stored = file.at(name);
  const at::Tensor copy = at::empty(stored.shape, at::TensorOptions(scalar_type(stored.dtype)));
  if (copy.nbytes() != stored.bytes.size())
    throw std::runtime_error("golden tensor " + name + ": size and shape differ");
  if (!stored.bytes.empty()) std::memcpy(copy.data_ptr(), stored.bytes.data(), stored.bytes.size());
  return copy;
}

double scalar(const GoldenFile& file, const std::string& name) { return tensor(file, name).item().toDouble(); }

}  // namespace spillway::test
