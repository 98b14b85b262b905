#include <spillway/offload/error.hpp>

#include <cstring>
#include <utility>

namespace spillway {
namespace {

std::string describe(const IoFailure& failure) {
  std::string text = failure.operation + " of ";
  if (failure.bytes > 0) {
    text += std::to_string(failure.bytes) + " bytes at offset " + std::to_string(failure.offset) + " in ";
  }
  text += failure.path + " failed";
  if (failure.error_number != 0) {
    text += ": ";
    text += std::strerror(failure.error_number);
    text += " (errno " + std::to_string(failure.error_number) + ")";
  }
  if (!failure.advice.empty()) {
    text += "; " + failure.advice;
  }
  return text;
}

}  // namespace

IoError::IoError(IoFailure failure) : Error(describe(failure)), failure_(std::move(failure)) {}

}  // namespace spillway
