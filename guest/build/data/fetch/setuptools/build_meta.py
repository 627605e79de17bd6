"""setuptools' build system, as far as paddock_fetch has one."""
import paddock_fetch


class Backend:
    def prepare_metadata_for_build_wheel(self, directory, config_settings=None):
        return paddock_fetch.prepare_metadata_for_build_wheel(directory)

    def build_wheel(self, *args, **options):
        return paddock_fetch.build_wheel()

    build_sdist = build_wheel


__legacy__ = Backend()
prepare_metadata_for_build_wheel = __legacy__.prepare_metadata_for_build_wheel
build_wheel = build_sdist = __legacy__.build_wheel
__all__ = ["prepare_metadata_for_build_wheel", "build_wheel", "build_sdist"]
