require "fileutils"
Dir.chdir(ARGV[0])
File.write("a", (0...5000).map { |i| "line #{i}\n" }.join)
File.open("a", "a") { |f| f.write("appended\n") }
puts "#{File.size("a")} #{File.stat("a").size}"
FileUtils.cp("a", "b")
File.open("b", "r+b") { |f| f.seek(4093); f.write("changed"); f.flush; f.truncate(10001) }
File.rename("b", "c")
puts "#{File.size("c")} #{IO.read("c", 15, 4090).inspect} #{Dir.children(".").sort}"
