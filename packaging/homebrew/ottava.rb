# Builds Ottava from a source tree of yours, with Homebrew on Linux. Put this file into a tap:
#
#   brew tap-new you/ottava && cp packaging/homebrew/ottava.rb "$(brew --repository you/ottava)/Formula/"
#   HOMEBREW_OTTAVA_SOURCE=$PWD brew install --HEAD you/ottava/ottava
class Ottava < Formula
  desc "Training of language models in 8-bit floating point"
  homepage "https://ottava.invalid"
  license "Apache-2.0"
  head ENV.fetch("HOMEBREW_OTTAVA_SOURCE", "/nowhere"), using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "pkgconf" => :build
  depends_on "tomlplusplus" => :build
  depends_on "curl"
  depends_on "jansson"
  depends_on "libyaml"
  depends_on :linux
  depends_on "open-mpi"
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "utf8proc"
  depends_on "zlib"
  depends_on "zstd"

  def install
    system "cmake", "-S", ".", "-B", "build", "-DOTTAVA_TESTS=OFF", "-DOTTAVA_WERROR=OFF", *std_cmake_args,
           "-DCMAKE_BUILD_TYPE=Release"
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    system bin/"ottava", "train", pkgshare/"configs/debug.toml", "--train.max_steps=1"
  end
end
