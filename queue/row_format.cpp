#include <ATen/ops/amax.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>

#include <spillway/queue/row_format.hpp>

namespace spillway::queue {

namespace {

constexpr double kLargestCode = 127;

}  // namespace

StoredRows StoredRows::narrow(std::int64_t first, std::int64_t count) const {
  const auto part = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, first, count) : all; };
  return {part(values), part(scales), part(labels)};
}

StoredRows StoredRows::select(const at::Tensor& indices) const {
  const auto part = [&](const at::Tensor& all) { return all.defined() ? all.index_select(0, indices) : all; };
  return {part(values), part(scales), part(labels)};
}

StoredRows StoredRows::clone() const {
  const auto copy = [](const at::Tensor& all) { return all.defined() ? all.clone(at::MemoryFormat::Contiguous) : all; };
  return {copy(values), copy(scales), copy(labels)};
}

RowFormat::RowFormat(at::ScalarType dtype, std::int64_t dim)
    : dtype_(dtype),
      dim_(dim),
      row_bytes_(dtype == at::kChar ? sizeof(float) + (static_cast<std::uint64_t>(dim) + 3) / 4 * 4
                                    : static_cast<std::uint64_t>(dim) * c10::elementSize(dtype)) {}

StoredRows RowFormat::round(const at::Tensor& keys) const {
  if (dtype_ != at::kChar) return {keys.detach().to(dtype_).contiguous(), {}, {}};
  const at::Tensor rows = keys.detach().to(at::kFloat);
  const at::Tensor scales = at::amax(rows.abs(), {1}).div_(kLargestCode);
  // A row of zeros, or of values that are as good as zero, has scale 0: any divisor gives its codes, which are 0.
  const at::Tensor divisors = scales.masked_fill(scales.eq(0), 1).unsqueeze(1);
  const at::Tensor codes = rows.div(divisors).round_().clamp_(-kLargestCode, kLargestCode).nan_to_num_();
  return {codes.to(at::kChar), scales, {}};
}

at::Tensor RowFormat::finite(const StoredRows& rows) {
  return rows.scales.defined() ? at::isfinite(rows.scales) : at::isfinite(rows.values).all(1);
}

StoredRows RowFormat::view(std::byte* memory, std::int64_t count) const {
  if (dtype_ != at::kChar) return {at::from_blob(memory, {count, dim_}, at::TensorOptions(dtype_)), {}, {}};
  const auto stride = static_cast<std::int64_t>(row_bytes_);
  constexpr auto kScaleBytes = static_cast<std::int64_t>(sizeof(float));
  return {at::from_blob(memory + kScaleBytes, {count, dim_}, {stride, 1}, at::TensorOptions(at::kChar)),
          at::from_blob(memory, {count}, {stride / kScaleBytes}, at::TensorOptions(at::kFloat)),
          {}};
}

void RowFormat::copy(const StoredRows& from, const StoredRows& to) {
  to.values.copy_(from.values);
  if (to.scales.defined()) to.scales.copy_(from.scales);
}

void RowFormat::decode(const StoredRows& rows, at::Tensor& out) {
  out.copy_(rows.values);
  if (rows.scales.defined()) out.mul_(rows.scales.unsqueeze(1));
}

}  // namespace spillway::queue
