# What `find_package(Spillway)` finds after `make install`.
include(CMakePackageConfigHelpers)
set(_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/Spillway")
configure_package_config_file(cmake/SpillwayConfig.cmake.in "${PROJECT_BINARY_DIR}/SpillwayConfig.cmake"
  INSTALL_DESTINATION "${_package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SpillwayConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SpillwayConfig.cmake" "${PROJECT_BINARY_DIR}/SpillwayConfigVersion.cmake"
  DESTINATION "${_package_folder}")
install(EXPORT SpillwayTargets NAMESPACE spillway:: DESTINATION "${_package_folder}")
