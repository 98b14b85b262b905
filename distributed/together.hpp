#pragma once

#include <functional>
#include <string>

namespace spillway::distributed {

class Collective;

/// Runs `body` on every rank, and goes on only if it succeeded on all of them: a rank that fails rethrows its own
/// error, the others, which would wait for it in vain, throw one that names it. `what` is what could not be done.
/// @throws what `body` throws; Error; as Collective.
void together(Collective& ranks, const std::string& what, const std::function<void()>& body);

}  // namespace spillway::distributed
