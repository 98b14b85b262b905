#pragma once

#include <cstdint>
#include <functional>

namespace spillway::test {

/// How far this process's resident memory rises above its present level while `body` runs, as the operating system sees
/// it. Large blocks go back to the system when they are freed from here on: glibc's heap, in which aligned memory
/// leaves holes that it does not fill again, would be measured otherwise. @throws std::runtime_error without /proc.
[[nodiscard]] std::int64_t peak_growth_bytes(const std::function<void()>& body);

}  // namespace spillway::test
