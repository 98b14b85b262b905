#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/remainder.h>

#include <spillway/offload/check.hpp>
#include <spillway/queue/label_ring.hpp>

namespace spillway::queue {

namespace {

/// Calls `copy` with the pieces of `count` places from `start` on that do not wrap around: first place, position among
/// the `count`, length.
template <typename Copy>
void for_each_piece(std::int64_t start, std::int64_t count, std::int64_t places, Copy copy) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t place = (start + done) % places;
    const std::int64_t length = std::min(count - done, places - place);
    copy(place, done, length);
    done += length;
  }
}

}  // namespace

LabelRing::LabelRing(std::int64_t places) : labels_(at::empty({places}, at::TensorOptions(at::kLong))) {}

void LabelRing::write(std::int64_t number, const at::Tensor& labels) {
  SPILLWAY_CHECK(labels.size(0) <= labels_.size(0), "more labels than places");
  for_each_piece(number, labels.size(0), labels_.size(0),
                 [&](std::int64_t place, std::int64_t at, std::int64_t length) {
                   labels_.narrow(0, place, length).copy_(labels.narrow(0, at, length));
                 });
}

void LabelRing::read(std::int64_t number, at::Tensor& out) const {
  SPILLWAY_CHECK(out.size(0) <= labels_.size(0), "more labels than places");
  for_each_piece(number, out.size(0), labels_.size(0), [&](std::int64_t place, std::int64_t at, std::int64_t length) {
    out.narrow(0, at, length).copy_(labels_.narrow(0, place, length));
  });
}

at::Tensor LabelRing::at_numbers(const at::Tensor& numbers) const {
  return labels_.index_select(0, at::remainder(numbers, labels_.size(0)));
}

}  // namespace spillway::queue
