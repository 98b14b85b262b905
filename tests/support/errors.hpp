#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace spillway {

/// What the Error that `call` throws says, for EXPECT_THAT. A call that throws nothing fails the test; any other
/// exception goes on to the test's end. gmock's ThrowsMessage does the same and takes a fifth of a second to compile
/// wherever it stands, ten times as long.
template <typename Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "it throws nothing";
  return {};
}

}  // namespace spillway
