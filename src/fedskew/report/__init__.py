"""What a person reads.

``terminal``  tables in the terminal
``figures``   figures on disk
``page``      one HTML file that opens in a browser
``live``      the page, served while runs go on
``exports``   runs handed to other tools
``amounts``   numbers with units
"""
