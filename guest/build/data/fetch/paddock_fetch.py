"""What pip takes for the build system of a source distribution that it only fetches.

pip download asks each archive's build system for the metadata, which for numpy would
configure a whole build. The archives carry that metadata in PKG-INFO.
"""
import os
import shutil


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    fields = {}
    with open("PKG-INFO", encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                break
            key, _, value = line.partition(":")
            fields.setdefault(key, value.strip())
    name = f"{fields['Name'].replace('-', '_')}-{fields['Version']}.dist-info"
    os.makedirs(os.path.join(directory, name))
    shutil.copy("PKG-INFO", os.path.join(directory, name, "METADATA"))
    return name


def build_wheel(*args, **options):
    raise RuntimeError("this archive is fetched, not built")


build_sdist = build_wheel
